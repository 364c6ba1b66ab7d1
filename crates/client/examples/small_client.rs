//! A client in 60 lines, made of `wire`, `topic` and `session` alone: prints the messages that match a filter.
//!
//! cargo run -p pondhawk-client --example small_client -- localhost:1883 'news/#'

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::Now;
use session::client::{Client, Event, Settings};
use topic::TopicFilter;
use wire::{Connect, Decoded, OneOrMore, Qos, SubscribeProperties, Subscription, Utf8, Version, decode};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, filter] = &arguments[..] else { return Err("what is wanted: ADDRESS FILTER".into()) };
    let subscription = Subscription::with_qos(TopicFilter::try_from(filter.as_str())?, Qos::ExactlyOnce);
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let mut client: Client = Client::new(Settings::default());
    let (mut input, mut output, mut read) = (Vec::new(), Vec::new(), [0; 4096]);
    let mut connect = Connect::new(Version::V5, Utf8::default());
    connect.keep_alive_secs = 60;
    client.connect(&connect, now(start), &mut output)?;
    loop {
        stream.write_all(&output)?;
        output.clear();
        let left_ms = client.poll_timeout().map(|due| due.saturating_sub(now(start).monotonic_ms).max(1));
        stream.set_read_timeout(left_ms.map(Duration::from_millis))?;
        match stream.read(&mut read) {
            Ok(0) => return Err("the server has closed the connection".into()),
            Ok(count) => input.extend_from_slice(&read[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        client.handle_timeout(now(start), &mut output).map_err(|what| what.to_string())?;
        let mut taken = 0;
        while let Decoded::Packet { packet, len } =
            decode(&input[taken..], client.version(), &client.limits())?
        {
            taken += len;
            match client.handle_packet(packet, now(start), &mut output)? {
                Event::Connected { .. } => {
                    let all = OneOrMore::one(&subscription);
                    client.subscribe(all, SubscribeProperties::EMPTY, now(start), &mut output)?;
                }
                Event::Subscribed(answer) => println!("{answer}"),
                Event::Message { message, .. } => println!("{}", message.without_alias()),
                Event::Refused { reason, .. } => return Err(format!("refused: {reason}").into()),
                Event::Disconnected(packet) => return Err(packet.to_string().into()),
                _ => {}
            }
        }
        input.drain(..taken);
    }
}

fn now(start: Instant) -> Now {
    let ms = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { monotonic_ms: ms(start.elapsed()), unix_ms: ms(unix) }
}
