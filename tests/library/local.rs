//! Clients of the same machine, over Unix sockets.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use client::{Endpoint, Version};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, DEADLINE, Options as BrokerOptions};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::transports::deliver_all;

const LENGTHS_BYTES: [usize; 4] = [0, 1, 1_000, 300_000];

/// Tries to start a broker with a listener at this address beside one for TCP.
fn try_start(address: &str, keys: &str) -> Result<Broker, String> {
    let settings =
        format!("[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = {address:?}\n{keys}");
    let broker = Broker::try_start(&BrokerOptions { settings, ..BrokerOptions::default() })?;
    broker.wait_for_log(&format!("listening on {address} (unix"));
    Ok(broker)
}

fn start(address: &str, keys: &str) -> Broker {
    try_start(address, keys).unwrap_or_else(|log| panic!("the broker did not start:\n{log}"))
}

fn place() -> (TempDir, PathBuf, String) {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let path = directory.path().join("pond.sock");
    let address = format!("unix:{}", path.display());
    (directory, path, address)
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("there is a file").ino()
}

/// The beginning of the answer to these bytes.
fn answer(mut socket: UnixStream, bytes: &[u8]) -> [u8; 4] {
    socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
    socket.write_all(bytes).expect("the broker reads");
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).expect("the broker answers");
    answer
}

#[tokio::test]
async fn messages_pass_over_a_socket_of_this_machine() {
    let (_directory, path, address) = place();
    let broker = start(&address, "unix_mode = \"0600\"\n");
    let file = fs::symlink_metadata(&path).expect("there is a file");
    assert!(file.file_type().is_socket() && file.permissions().mode() & 0o777 == 0o600, "{file:?}");
    let endpoint: Endpoint = format!("unix://{}", path.display()).parse().expect("a URL");
    for version in Version::ALL {
        let course = deliver_all(endpoint.clone(), version, LENGTHS_BYTES);
        timeout(DEADLINE, course).await.unwrap_or_else(|_| panic!("too long: {version}"));
    }
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    let connected = broker.log_lines(" connected ");
    let peer = format!("peer=unix:uid={uid},pid={pid} ");
    assert!(connected.len() == 3 && connected.iter().all(|line| line.contains(&peer)), "{connected:?}");
    let page = answer(UnixStream::connect(&path).expect("it listens"), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(&page, b"HTTP");
    assert!(broker.stop().success());
    assert!(!path.exists(), "a broker that stops removes its socket");
}

#[test]
fn the_socket_of_a_dead_broker_is_replaced_and_that_of_a_live_one_is_not() {
    let (_directory, path, address) = place();
    let broker = start(&address, "");
    let made = inode(&path);
    let log = try_start(&address, "").expect_err("it is in use");
    assert!(log.contains("another program uses it"), "{log}");
    assert_eq!(inode(&path), made);
    drop(UnixStream::connect(&path).expect("it listens"));
    // Killed.
    drop(broker);
    assert!(path.exists());
    let broker = start(&address, "");
    assert_ne!(inode(&path), made);
    let connack = answer(
        UnixStream::connect(&path).expect("it listens"),
        &Connect::new(Version::V3_1_1, "frog").bytes(),
    );
    assert!(packet::is_accepted(&connack), "{connack:02x?}");
    drop(broker);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let (_directory, path, address) = place();
    fs::write(&path, "precious").expect("a temporary file can be written");
    let log = try_start(&address, "").expect_err("there is a file");
    assert!(log.contains("there is a file that is no socket"), "{log}");
    assert_eq!(fs::read(&path).expect("it is there"), b"precious");
}

#[test]
fn a_name_that_is_no_file_is_listened_on() {
    let name = format!("pondhawk-test-{}", std::process::id());
    let address = format!("unix:@{name}");
    let _broker = start(&address, "");
    let log = try_start(&address, "").expect_err("it is in use");
    assert!(log.contains("another program uses it"), "{log}");
    let place = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixStream::connect_addr(&place).expect("it listens");
    let connack = answer(socket, &Connect::new(Version::V3_1_1, "frog").bytes());
    assert!(packet::is_accepted(&connack), "{connack:02x?}");
}
