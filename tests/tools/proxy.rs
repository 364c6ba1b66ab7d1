//! A SOCKS5 proxy (RFC 1928, RFC 1929) that reports the user and the destination of each request.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

const VERSION: u8 = 5;
const NO_CREDENTIALS: u8 = 0;
const USER_NAME: u8 = 2;
const IPV4: u8 = 1;
const NAME: u8 = 3;

/// Forwards a client to its destination until either end closes, and describes the request.
pub(crate) async fn lead(mut client: TcpStream) -> String {
    match greet(&mut client).await {
        Ok((who, host, port)) => {
            let way = format!("as {who} to {host}:{port}");
            if let Ok(mut server) = TcpStream::connect((host.as_str(), port)).await
                && client.write_all(&[VERSION, 0, 0, IPV4, 127, 0, 0, 1, 0, 0]).await.is_ok()
            {
                // A failure at the end of the connection has no effect.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
            way
        }
        Err(error) => format!("no SOCKS5: {error}"),
    }
}

/// Reads the request, and returns user, host and port.
async fn greet(client: &mut TcpStream) -> io::Result<(String, String, u16)> {
    let [_, count] = take(client).await?;
    let methods = some(client, count).await?;
    let who = if methods.contains(&USER_NAME) {
        client.write_all(&[VERSION, USER_NAME]).await?;
        let [_, length] = take(client).await?;
        let name = some(client, length).await?;
        let [length] = take(client).await?;
        let password = some(client, length).await?;
        client.write_all(&[1, 0]).await?;
        format!("{}:{}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&password))
    } else {
        client.write_all(&[VERSION, NO_CREDENTIALS]).await?;
        "anybody".to_owned()
    };
    let [_, _, _, kind] = take(client).await?;
    let host = match kind {
        IPV4 => Ipv4Addr::from(take::<4>(client).await?).to_string(),
        NAME => {
            let [length] = take(client).await?;
            String::from_utf8_lossy(&some(client, length).await?).into_owned()
        }
        other => return Err(io::Error::other(format!("an address of kind {other}"))),
    };
    Ok((who, host, u16::from_be_bytes(take(client).await?)))
}

async fn take<const COUNT: usize>(client: &mut TcpStream) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn some(client: &mut TcpStream, count: u8) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(count)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
