//! Throughput, processor time and memory of a program with three stages between two topics: the example `pipeline` of
//! `pondhawk-client`, and the same program with paho.golang.
//!
//! This process publishes the messages, and receives those that the program has published again. The programs take turns,
//! round after round, each with a new broker, and the figures are medians.

use std::error::Error;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Options, Outgoing, Qos, Version, filter, topic};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pondhawk_tests::Broker;
use tokio::time::timeout;

use crate::job::{Library, PAYLOAD_BYTES, WINDOW, first_line};
use crate::table::median;

pub(crate) const USAGE: &str = "usage: client-speed pipeline [--messages N] [--repeat N]";

const WORKERS: [usize; 3] = [1, 4, 16];

/// Time limit for one message, far beyond the time that a program needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// One run of a program.
#[derive(Debug, Clone, Copy)]
struct Measured {
    messages: usize,
    took: Duration,
    cpu: Duration,
    peak_kib: u64,
}

/// The rounds of a program with a number of workers.
struct Row {
    library: Library,
    workers: usize,
    rounds: Vec<Measured>,
}

/// A process that ends with this value.
struct Running(Child);

/// Runs both programs with each number of workers, and prints a table.
pub(crate) fn compare(messages: usize, repeat: usize) -> Result<(), String> {
    let programs = [
        (Library::Ours, pondhawk_tests::example("pipeline")),
        (Library::Paho, pondhawk_tests::peer_pipeline()),
    ];
    let mut rows: Vec<Row> = WORKERS
        .iter()
        .flat_map(|&workers| programs.iter().map(move |(library, _)| (*library, workers)))
        .map(|(library, workers)| Row { library, workers, rounds: Vec::new() })
        .collect();
    for row in std::iter::repeat_n((), repeat).flat_map(|()| 0..rows.len()).collect::<Vec<_>>() {
        let row = &mut rows[row];
        let program = programs.iter().find(|(library, _)| *library == row.library);
        let (_, program) = program.ok_or("no such program")?;
        let measured = measure(program, row.workers, messages);
        let measured = measured.map_err(|error| format!("{}: {error}", row.library.name()))?;
        row.rounds.push(measured);
    }
    println!("pipeline, {messages} messages of {PAYLOAD_BYTES} bytes at QoS 1, MQTT 5\n");
    println!("| workers per stage | library | messages/s | CPU seconds per million | peak memory |");
    println!("|---:|---|---:|---:|---:|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn measure(program: &PathBuf, workers: usize, messages: usize) -> Result<Measured, Box<dyn Error>> {
    let settings = format!("[sessions]\nreceive_maximum = {WINDOW}\n");
    let broker = Broker::start(&pondhawk_tests::Options { settings, ..pondhawk_tests::Options::default() });
    let address = broker.address();
    let mut command = Command::new(program);
    command.args([&address.to_string(), "in/#", "[0-9]+ rain( |$)", "out", &workers.to_string()]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn()?);
    if first_line(&mut running.0).as_deref() != Some("in/# to out") {
        return Err("the program does not subscribe".into());
    }
    let before = running.cpu()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let took = runtime.block_on(exchange(address, messages))?;
    let cpu = running.cpu()?.saturating_sub(before);
    Ok(Measured { messages, took, cpu, peak_kib: running.peak_kib()? })
}

/// Publishes messages, of which every second one matches, and waits for the copies of these. Returns the time for that.
async fn exchange(address: SocketAddr, messages: usize) -> Result<Duration, Box<dyn Error>> {
    let window = NonZeroU16::new(WINDOW).ok_or("no window")?;
    let options = |name| Options::new(Version::V5).client_id(name).inflight_max(window);
    let sender = Client::connect_tcp(address, options("sender")).await?;
    let receiver = Client::connect_tcp(address, options("receiver")).await?;
    let mut copies = receiver.subscribe(filter!("out"), Qos::AtLeastOnce).await?;
    let began = Instant::now();
    let publishing = async {
        for number in 0..messages {
            let weather = if number % 2 == 0 { "rain" } else { "snow" };
            let payload = format!("{:<PAYLOAD_BYTES$}", format!("{number:08} {weather}"));
            let message = Outgoing::new(topic!("in/a"), payload.as_bytes()).qos(Qos::AtLeastOnce);
            drop(sender.publish(&message).await?);
        }
        Ok::<(), Box<dyn Error>>(())
    };
    let receiving = async {
        let mut is_missing = vec![true; messages];
        for _ in (0..messages).step_by(2) {
            let copy = timeout(DEADLINE, copies.next()).await?.ok_or("the connection is over")?;
            let text = std::str::from_utf8(copy.payload())?;
            let (number, rest) = text.split_once(' ').ok_or("a copy without a number")?;
            let place = is_missing.get_mut(number.parse::<usize>()?).ok_or("an unknown number")?;
            if !std::mem::replace(place, false) || rest.trim_end() != "RAIN" {
                return Err(format!("an unexpected copy: {text}").into());
            }
        }
        Ok(())
    };
    tokio::try_join!(publishing, receiving)?;
    Ok(began.elapsed())
}

impl Running {
    /// User and system time of all threads of the process so far.
    fn cpu(&self) -> Result<Duration, Box<dyn Error>> {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(self.0.id())?))?;
        Ok(clock_gettime(clock)?.into())
    }

    /// Highest resident memory of the process so far, in KiB.
    fn peak_kib(&self) -> Result<u64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error says that the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Row {
    fn median(&self, figure: impl Fn(&Measured) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.median(|round| round.messages as f64 / round.took.as_secs_f64() / 1e3);
        let cpu = self.median(|round| round.cpu.as_secs_f64() / round.messages as f64 * 1e6);
        let peak = self.median(|round| round.peak_kib as f64 / 1024.0);
        let (workers, library) = (self.workers, self.library.name());
        write!(f, "| {workers} | {library} | {rate:.1} k | {cpu:.1} | {peak:.1} MiB |")
    }
}
