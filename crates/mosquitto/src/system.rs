//! The machine around the files: other files, host names, IPv6.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
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

/// Maximum length of a file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a regular file of at most `bytes_max` bytes, which is a number of whole MiB.
///
/// # Errors
/// As the file system says, or the file is none, or it is too large.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // A pipe would not open before somebody writes to it, and a device need not end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = format!("it has more than {} MiB", bytes_max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// The machine that runs this program.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl System for ThisMachine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_regular(path, FILE_BYTES_MAX)
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn regular_files_of_a_bounded_length_are_read() {
        let directory = std::env::temp_dir().join(format!("pondhawk-system-{}", std::process::id()));
        fs::create_dir(&directory).expect("a temporary directory can be made");
        let path = |name: &str| directory.join(name);
        fs::write(path("conf"), "listener 1883").expect("it is ours");
        let long = File::create(path("long")).expect("it is ours");
        let _socket = UnixListener::bind(path("socket")).expect("it is ours");
        let kinds = [FILE_BYTES_MAX, FILE_BYTES_MAX + 1].map(|bytes| {
            long.set_len(bytes).expect("the file has holes");
            ThisMachine.read(&path("long")).map(|_| ()).map_err(|error| error.kind())
        });
        let read = ThisMachine.read(&path("conf"));
        let others =
            [path("socket"), directory.clone(), "/dev/zero".into()].map(|path| ThisMachine.read(&path));
        fs::remove_dir_all(&directory).expect("it is ours");
        assert_eq!(kinds, [Ok(()), Err(io::ErrorKind::FileTooLarge)]);
        assert_eq!(read.expect("a file"), b"listener 1883");
        assert!(others.iter().all(Result::is_err));
    }
}
