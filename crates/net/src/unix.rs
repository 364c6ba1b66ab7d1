//! Sockets of this machine: files, and on Linux names that are no files.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mio::net::UnixStream;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mode_t};
use socket2::{Domain, SockAddr, Socket, Type};
use stream::Peer;

/// The processes that may connect to a socket file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the file, such as `0o660`. A client needs the permission to write.
    pub mode: u32,
    /// User id of the owner. `None` is the user of the broker.
    pub user: Option<u32>,
    /// Group id of the owner. `None` is the group of the broker.
    pub group: Option<u32>,
}

/// A socket of this machine that listens. Its file is removed on drop.
#[derive(Debug)]
pub struct UnixSocket {
    pub(crate) file: Option<SocketFile>,
    pub(crate) listener: UnixListener,
}

impl From<UnixListener> for UnixSocket {
    /// A socket that another process has made, and whose file stays.
    fn from(listener: UnixListener) -> Self {
        Self { file: None, listener }
    }
}

/// The file of a socket that this process has made.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another broker may have replaced the file.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// How often another broker is waited for that makes a socket in the same directory, and how long each time.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Binds a socket file and listens. The file of a broker that has ended without removing it is replaced.
///
/// The socket gets its permissions before it gets its name: at no time may others connect. The directory is locked
/// meanwhile: of two brokers that find the same dead socket, the second finds the socket of the first.
///
/// # Errors
/// Another process listens at this path, the path is a file of another kind, or as the system says.
pub fn listen_unix(path: &Path, access: Access, backlog: i32) -> io::Result<UnixSocket> {
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    let _lock = lock(parent)?;
    check_stale(path)?;
    // Process numbers do not do: in two containers that share a directory they are the same.
    let number = getrandom::u64().map_err(io::Error::other)?;
    let unnamed = parent.join(format!(".{number:016x}"));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(&unnamed)?)?;
    // From here on the file is removed if something fails.
    let inode = fs::symlink_metadata(&unnamed)?.ino();
    let mut file = SocketFile { path: unnamed.clone(), inode };
    // The owner of the directory may have put a link there by now.
    let mode = Mode::from_bits_truncate(mode_t::try_from(access.mode).unwrap_or(0o600));
    fchmodat(AT_FDCWD, &unnamed, mode, FchmodatFlags::NoFollowSymlink)?;
    if access.user.is_some() || access.group.is_some() {
        lchown(&unnamed, access.user, access.group)?;
    }
    socket.listen(backlog)?;
    fs::rename(&unnamed, path)?;
    path.clone_into(&mut file.path);
    Ok(UnixSocket { listener: socket.into(), file: Some(file) })
}

/// Binds a name that is no file, and listens. Every process of this machine can connect.
///
/// # Errors
/// Another process has the name, or as the system says.
#[cfg(target_os = "linux")]
pub fn listen_abstract(name: &str, backlog: i32) -> io::Result<UnixSocket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(format!("\0{name}"))?)?;
    socket.listen(backlog)?;
    Ok(UnixSocket { listener: socket.into(), file: None })
}

/// Other systems have files only.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn listen_abstract(_: &str, _: i32) -> io::Result<UnixSocket> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has sockets without a file"))
}

/// Locks a directory against other brokers, until the file is dropped.
fn lock(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has locked the directory"))
}

/// Whether there is nothing at this path, or a socket on which nobody listens any more.
fn check_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A process that listens and accepts nothing must not keep this one waiting.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// The process at the other end, as the system knows it. A process that this one cannot see, from outside of a container,
/// has no number.
#[cfg(target_os = "linux")]
pub(crate) fn peer(socket: &UnixStream) -> Peer {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

    match getsockopt(socket, PeerCredentials) {
        Ok(credentials) => Peer::Process {
            uid: Some(credentials.uid()),
            pid: u32::try_from(credentials.pid()).ok().filter(|pid| *pid > 0),
        },
        Err(_) => Peer::Process { uid: None, pid: None },
    }
}

/// The process at the other end. Other systems than Linux have other calls for that.
#[cfg(not(target_os = "linux"))]
pub(crate) fn peer(_: &UnixStream) -> Peer {
    Peer::Process { uid: None, pid: None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream as Client;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const ACCESS: Access = Access { mode: 0o600, user: None, group: None };

    /// A directory of this test, removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            let path =
                std::env::temp_dir().join(format!("pond-{:016x}", getrandom::u64().expect("a number")));
            fs::create_dir(&path).expect("a temporary directory can be made");
            Self(path)
        }

        /// The socket file of a process that was killed.
        fn with_dead_socket(&self) -> PathBuf {
            let path = self.0.join("pond.sock");
            drop(UnixListener::bind(&path).expect("the directory is empty"));
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn of_many_that_find_a_dead_socket_one_takes_its_place() {
        const MANY: u8 = 8;
        for _ in 0..50 {
            let place = Place::new();
            let path = place.with_dead_socket();
            let start = Barrier::new(MANY.into());
            let outcomes: Vec<io::Result<UnixSocket>> = thread::scope(|scope| {
                let one = || {
                    start.wait();
                    // Nobody accepts: there is room for the look of each other one, and for the last connection.
                    listen_unix(&path, ACCESS, 2 * i32::from(MANY))
                };
                let all: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
                all.into_iter().map(|one| one.join().expect("it does not panic")).collect()
            });
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
            for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            }
            drop(Client::connect(&path).expect("one of them listens"));
            drop(outcomes);
            assert_eq!(fs::read_dir(&place.0).expect("it is there").count(), 0, "files are left");
        }
    }

    /// Another thread looks at the file all the time.
    #[test]
    fn a_socket_has_its_permissions_before_its_name() {
        let place = Place::new();
        let path = place.0.join("pond.sock");
        let is_over = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(file) = fs::symlink_metadata(&path) {
                        assert_eq!(file.permissions().mode() & 0o777, 0o600);
                        seen += 1;
                    }
                }
                seen
            });
            for _ in 0..2_000 {
                drop(listen_unix(&path, ACCESS, 1).expect("nobody else listens"));
            }
            is_over.store(true, Ordering::Relaxed);
            watcher.join().expect("every look finds the permissions")
        });
        println!("looks: {seen}");
    }

    /// A process that was stopped, with as many connections waiting as there may be.
    #[test]
    fn a_socket_whose_owner_accepts_nothing_is_in_use() {
        let place = Place::new();
        let path = place.0.join("pond.sock");
        let stopped = listen_unix(&path, ACCESS, 1).expect("nobody else listens");
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            socket.set_nonblocking(true).expect("a socket need not wait");
            socket.connect(&SockAddr::unix(&path).expect("a path")).map(|()| socket)
        };
        let _waiting: Vec<Socket> = std::iter::repeat_with(connect).map_while(Result::ok).collect();
        let error = listen_unix(&path, ACCESS, 1).expect_err("it is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(stopped);
    }
}
