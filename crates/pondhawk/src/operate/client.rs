//! Requests to the server for operators.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use config::{Config, Flags, Machine};
use rustls::StreamOwned;
use serde_json::Value;

use super::secure::Secure;
use super::{Place, login};
use crate::admin::TOKEN_FILE;
use crate::file;
use crate::files_read::FilesRead;

/// Address of the server without a configuration that names another one.
pub(super) const ADDRESS: &str = "127.0.0.1:9883";
/// The variable of the environment with the address, as the image sets it.
const ADDRESS_VARIABLE: &str = "PONDHAWK_ADMIN_ADDRESS";
/// Time in which the server must answer, for each read and write.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The end of the head of an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// A server, with what its requests show.
pub(crate) struct Server {
    address: String,
    /// TLS, if the server speaks it.
    secure: Option<Secure>,
    /// The header `Authorization`, if requests need one.
    authorization: Option<String>,
}

impl Server {
    /// The server that the command line names, or the one of the configuration.
    ///
    /// # Errors
    /// The configuration has a mistake, or a file of the command line cannot be read, or there is no token.
    pub(crate) fn find(place: &Place) -> io::Result<Self> {
        let config = configuration(place)?;
        let (address, secure) = reach(place, &config)?;
        if place.username.is_some() && secure.is_none() && !is_loopback(host(&address)) {
            let why = "a password needs TLS on its way to another machine: --admin https://HOST:PORT, or --cafile FILE";
            return Err(io::Error::other(why));
        }
        Ok(Self { address, secure, authorization: authorization(place, &config)? })
    }

    /// The same server for requests that need no token: those about its health.
    ///
    /// Without a configuration file, the rest of the environment may be incomplete: an address that other machines reach needs a
    /// token file, which the file of the broker may name. Then only the address counts.
    ///
    /// # Errors
    /// The configuration has a mistake.
    pub(crate) fn find_without_token(place: &Place) -> io::Result<Self> {
        let from_environment = || crate::environment().remove(ADDRESS_VARIABLE);
        let (address, secure) = match (configuration(place), &place.config) {
            (Ok(config), _) => reach(place, &config)?,
            (Err(error), Some(_)) => return Err(error),
            (Err(_), None) => {
                let named = place.admin.clone().or_else(from_environment);
                of_text(&named.unwrap_or_else(|| ADDRESS.to_owned()), place)?
            }
        };
        Ok(Self { address, secure, authorization: None })
    }

    /// Sends a request, and returns the body of the answer.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the request.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<String> {
        let body = self.fetch(method, path, body)?;
        String::from_utf8(body).map_err(|_| io::Error::other("the answer is no text"))
    }

    /// The same for an answer that may be no text.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn fetch(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Vec<u8>> {
        let (status, body) = self.request(method, path, body)?;
        if is_success(status) || (status == 503 && path == "/readyz") {
            return Ok(body);
        }
        Err(io::Error::other(reason(&serde_json::from_slice(&body).unwrap_or_default())))
    }

    /// The answer to a request, also if the server has refused it or has stopped in the middle. Then it comes with the reason.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) fn answer(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> io::Result<(Value, Option<String>)> {
        let (status, body) = self.request(method, path, body)?;
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let refused = (!is_success(status)).then(|| reason(&value));
        Ok((value, refused))
    }

    /// Exchanges a request for its answer. An error says that the server cannot be reached.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<(u16, Vec<u8>)> {
        let explain = |error: io::Error| {
            let text = format!(
                "no answer from the admin server at {}: {error} (is `address` of [admin] set, and does the broker run?)",
                self.address
            );
            io::Error::new(error.kind(), text)
        };
        self.exchange(method, path, body).map_err(explain)
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<(u16, Vec<u8>)> {
        let address = self.address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        let authorization = self.authorization.iter().map(|value| format!("Authorization: {value}\r\n"));
        // HTTP/1.0 has no chunks, and the end of the connection is the end of the answer.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            authorization.collect::<String>(),
            body.len()
        );
        let mut answer = match &self.secure {
            None => ask(stream, &request)?,
            Some(secure) => ask(StreamOwned::new(secure.connect()?, stream), &request)?,
        };
        let not_http = || io::Error::other("the answer is not HTTP");
        let end = answer.windows(HEAD_END.len()).position(|four| four == HEAD_END).ok_or_else(not_http)?;
        let body = answer.split_off(end + HEAD_END.len());
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(not_http)?;
        Ok((status, body))
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// The reason that the server has given for a refusal.
fn reason(answer: &Value) -> String {
    answer["error"]["message"].as_str().unwrap_or("the server has given no reason").to_owned()
}

/// The configuration that the command line names, with the environment.
fn configuration(place: &Place) -> io::Result<Config> {
    let flags = Flags { environment: crate::environment(), ..Flags::default() };
    let loaded = file::load(place.config.as_deref(), &flags, &Machine::detect(), &FilesRead::default());
    Ok(loaded.map_err(|failure| io::Error::other(without_title(failure.render(false))))?.config)
}

/// Sends a request, and reads until the server closes the connection.
fn ask(mut stream: impl Read + Write, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The address that the command line names, or the one of the configuration, with TLS if the server speaks it.
fn reach(place: &Place, config: &Config) -> io::Result<(String, Option<Secure>)> {
    if let Some(text) = &place.admin
        && (text.contains("://") || place.cafile.is_some())
    {
        return of_text(text, place);
    }
    let configured = config.admin.address.as_ref().map(ToString::to_string);
    let address = place.admin.clone().or(configured).unwrap_or_else(|| ADDRESS.to_owned());
    let secure =
        config.admin.has_tls().then(|| Secure::of_configuration(host(&address), &config.admin, place));
    Ok((address, secure.transpose()?))
}

/// An address or a URL of the command line or the environment.
fn of_text(text: &str, place: &Place) -> io::Result<(String, Option<Secure>)> {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let address = rest.trim_end_matches('/').to_owned();
    let has_tls = match scheme {
        None => place.cafile.is_some(),
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err(io::Error::other("the URL of a server begins with http:// or https://")),
    };
    let has_port = host(&address).len() < address.len();
    let address = match scheme {
        Some(_) if !has_port => format!("{address}:{}", if has_tls { 443 } else { 80 }),
        _ => address,
    };
    let secure = has_tls.then(|| Secure::of_command_line(host(&address), place)).transpose()?;
    Ok((address, secure))
}

/// Whether a host is this machine, by its name or address.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The host of an address with or without a port.
fn host(address: &str) -> &str {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match address.rsplit_once(':') {
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => host,
        _ => address,
    }
}

/// The proof that requests show: the password of a user, the certificate of the connection alone, or a token.
fn authorization(place: &Place, config: &Config) -> io::Result<Option<String>> {
    if let Some(name) = &place.username {
        return login::password(name, place).map(Some);
    }
    if place.cert.is_some() && place.token_file.is_none() {
        return Ok(None);
    }
    let generated = || config.data_dir.as_ref().map(|directory| directory.join(TOKEN_FILE));
    let from_config = config.admin.admin_token_file.clone();
    let file = place.token_file.clone().or(from_config).or_else(generated);
    let file = file.ok_or_else(|| io::Error::other("name a file with a token: --token-file FILE"))?;
    let is_named = place.admin.is_some() || place.token_file.is_some();
    login::token(&file, is_named || config.admin.address.is_some()).map(Some)
}

/// The text of a failure whose title the caller writes again.
fn without_title(text: String) -> String {
    text.strip_prefix("error: ").map(str::to_owned).unwrap_or(text)
}

/// Encodes a text for a path or a query: everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_perhaps_a_port() {
        let rows = [
            ("pond.example:9883", "pond.example"),
            ("pond.example", "pond.example"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:9883", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
        ];
        for (address, expected) in rows {
            assert_eq!(host(address), expected);
        }
    }
}
