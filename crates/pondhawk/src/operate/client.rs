//! Requests to the server for operators.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use config::{Config, Flags, Machine};
use serde_json::Value;

use super::Place;
use crate::admin::TOKEN_FILE;
use crate::file;
use crate::files_read::FilesRead;

/// Address of the server without a configuration that names another one.
const ADDRESS: &str = "127.0.0.1:9883";
/// The variable of the environment with the address, as the image sets it.
const ADDRESS_VARIABLE: &str = "PONDHAWK_ADMIN_ADDRESS";
/// Time in which the server must answer, for each read and write.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The end of the head of an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// A server, with a token for it if the requests need one.
pub(crate) struct Server {
    address: String,
    token: Option<String>,
}

impl Server {
    /// The server that the command line names, or the one of the configuration.
    ///
    /// # Errors
    /// The configuration has a mistake, or there is no token that can be read.
    pub(crate) fn find(place: &Place) -> io::Result<Self> {
        let config = configuration(place)?;
        let from_config = config.admin.admin_token_file.clone();
        let generated = || config.data_dir.as_ref().map(|directory| directory.join(TOKEN_FILE));
        let file = place.token_file.clone().or(from_config).or_else(generated);
        let file = file.ok_or_else(|| io::Error::other("name a file with a token: --token-file FILE"))?;
        let is_named = place.admin.is_some() || place.token_file.is_some();
        let is_configured = is_named || config.admin.address.is_some();
        Ok(Self { address: address(place, &config), token: Some(read_token(&file, is_configured)?) })
    }

    /// The same server for requests that need no token: those about its health.
    ///
    /// Without a configuration file, only its address counts. The rest of the environment may be incomplete: an address that
    /// other machines reach needs a token file, which the file of the broker may name.
    ///
    /// # Errors
    /// The configuration has a mistake.
    pub(crate) fn find_without_token(place: &Place) -> io::Result<Self> {
        let from_environment = || crate::environment().remove(ADDRESS_VARIABLE);
        let address = match (&place.admin, &place.config) {
            (Some(admin), _) => admin.clone(),
            (None, Some(_)) => address(place, &configuration(place)?),
            (None, None) => from_environment().unwrap_or_else(|| ADDRESS.to_owned()),
        };
        Ok(Self { address, token: None })
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
        let explain = |error: io::Error| {
            let text = format!(
                "no answer from the admin server at {}: {error} (is `address` of [admin] set, and does the broker run?)",
                self.address
            );
            io::Error::new(error.kind(), text)
        };
        let (status, body) = self.exchange(method, path, body).map_err(explain)?;
        if (200..300).contains(&status) || (status == 503 && path == "/readyz") {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = value["error"]["message"].as_str().unwrap_or("the server has given no reason");
        Err(io::Error::other(text.to_owned()))
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<(u16, Vec<u8>)> {
        let address = self.address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        // HTTP/1.0 has no chunks, and the end of the connection is the end of the answer.
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            token.collect::<String>(),
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        let not_http = || io::Error::other("the answer is not HTTP");
        let end = answer.windows(HEAD_END.len()).position(|four| four == HEAD_END).ok_or_else(not_http)?;
        let body = answer.split_off(end + HEAD_END.len());
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(not_http)?;
        Ok((status, body))
    }
}

/// The configuration that the command line names, with the environment.
fn configuration(place: &Place) -> io::Result<Config> {
    let flags = Flags { environment: crate::environment(), ..Flags::default() };
    let loaded = file::load(place.config.as_deref(), &flags, &Machine::detect(), &FilesRead::default());
    Ok(loaded.map_err(|failure| io::Error::other(without_title(failure.render(false))))?.config)
}

/// The address that the command line names, or the one of the configuration.
fn address(place: &Place, config: &Config) -> String {
    let configured = config.admin.address.as_ref().map(ToString::to_string);
    place.admin.clone().or(configured).unwrap_or_else(|| ADDRESS.to_owned())
}

/// The text of a failure whose title the caller writes again.
fn without_title(text: String) -> String {
    text.strip_prefix("error: ").map(str::to_owned).unwrap_or(text)
}

/// The first token of a file. `is_configured` says whether anything names an admin server.
fn read_token(path: &PathBuf, is_configured: bool) -> io::Result<String> {
    let explain = |error: &dyn std::fmt::Display| {
        let shown = wire::Shown(path.display());
        io::Error::other(format!("no token in {shown}: {error} (--token-file FILE names another one)"))
    };
    if !is_configured && !path.exists() {
        return Err(io::Error::other(format!(
            "no configuration names an admin server: -c FILE names the broker's configuration; if it has no [admin], \
             add `[admin]` with `address = \"{ADDRESS}\"` and restart the broker"
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| explain(&error))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.next().ok_or_else(|| explain(&"the file is empty"))?;
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(explain(&"a token has no blanks, and ASCII characters only"));
    }
    Ok(token.to_owned())
}

/// Encodes a text for a path or a query: everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
