//! A machine in memory, with files and host names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) struct Machine {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) has_ipv6: bool,
}

/// A machine with IPv6, with these files, and with the users `mosquitto` and `nobody`.
pub(crate) fn machine(files: &[(&str, &str)]) -> Machine {
    let mut all: BTreeMap<PathBuf, Vec<u8>> =
        files.iter().map(|(name, text)| (PathBuf::from(name), text.as_bytes().to_vec())).collect();
    let users = b"root:x:0:0::/:/bin/sh\nnobody:x:9:9::/:\nmosquitto:x:8:8::/:\n".to_vec();
    all.insert("/etc/passwd".into(), users);
    Machine { files: all, has_ipv6: true }
}

impl mosquitto::System for Machine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let inside = self.files.keys().filter(|path| path.parent() == Some(directory));
        let names: Vec<OsString> = inside.filter_map(|path| path.file_name()).map(OsString::from).collect();
        if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        match host {
            "two.example" => vec![[192, 0, 2, 1].into(), "2001:db8::1".parse().expect("an address")],
            "localhost" => vec![[127, 0, 0, 1].into(), "::1".parse().expect("an address")],
            _ => Vec::new(),
        }
    }

    fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }
}
