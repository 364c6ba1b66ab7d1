//! The machine around the files: other files, host names, IPv6.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::path::Path;

/// Answers the questions of the translation about the machine. Tests implement it with maps.
pub trait System {
    /// Returns the bytes of a file. A relative path starts at the working directory, as in Mosquitto.
    ///
    /// # Errors
    /// As the file system says.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the names of all entries of a directory, in any order.
    ///
    /// # Errors
    /// As the file system says.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Returns the addresses of a host name; none if nobody knows the name.
    fn addresses(&self, host: &str) -> Vec<IpAddr>;

    /// Whether sockets of IPv6 can be bound.
    fn has_ipv6(&self) -> bool;
}

/// The machine that runs this program.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl System for ThisMachine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        let found = (host, 0).to_socket_addrs();
        found.map_or_else(|_| Vec::new(), |found| found.map(|address| address.ip()).collect())
    }

    fn has_ipv6(&self) -> bool {
        UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
    }
}
