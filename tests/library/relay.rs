//! A network between a client and its server that breaks when it is told to, and in a storm at random. It runs on the
//! one thread of its test: nobody is between load and store.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pondhawk_tests::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Maximum number of bytes, of both directions, after which a connection is cut in a storm: some within CONNECT, some
/// with hundreds of packets behind them.
const BYTES_MAX: usize = 6_000;

pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    random: Mutex<Random>,
    cuts_left: AtomicUsize,
    cut_now: Notify,
}

impl Relay {
    /// A quiet relay. In a storm, the seed decides its behaviour.
    pub(crate) async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            server,
            random: Mutex::new(Random::of(seed, 0)),
            cuts_left: AtomicUsize::new(0),
            cut_now: Notify::new(),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    /// Address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections that there are, without a word.
    pub(crate) fn cut(&self) {
        self.shared.cut_now.notify_waiters();
    }

    /// Ends all connections this number of times, each time after a while.
    pub(crate) fn storm(&self, cuts: usize) {
        self.shared.cuts_left.store(cuts, Ordering::Relaxed);
        self.cut();
    }

    /// Whether what is made now lasts.
    pub(crate) fn is_calm(&self) -> bool {
        self.shared.cuts_left.load(Ordering::Relaxed) == 0
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, Arc::clone(&shared)));
    }
}

/// Carries one connection's bytes until an end closes it or it is cut.
async fn carry(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let Fate { bytes, is_reset } = shared.fate();
    let server = TcpStream::connect(shared.server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        if is_reset {
            stream.set_zero_linger()?;
        }
    }
    let left = AtomicUsize::new(bytes);
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        ended = pump(from_client, to_server, &left) => ended?,
        ended = pump(from_server, to_client, &left) => ended?,
        () = shared.cut_now.notified() => left.store(0, Ordering::Relaxed),
    }
    if left.load(Ordering::Relaxed) == 0 {
        shared.note_cut();
    }
    Ok(())
}

/// Fate of a connection.
struct Fate {
    bytes: usize,
    /// It ends with a reset, which throws away what is on the way, instead of an orderly end.
    is_reset: bool,
}

impl Shared {
    fn note_cut(&self) {
        let left = self.cuts_left.load(Ordering::Relaxed);
        self.cuts_left.store(left.saturating_sub(1), Ordering::Relaxed);
    }

    fn fate(&self) -> Fate {
        if self.cuts_left.load(Ordering::Relaxed) == 0 {
            return Fate { bytes: usize::MAX, is_reset: false };
        }
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        Fate { bytes: 1 + random.below(BYTES_MAX), is_reset: random.one_in(2) }
    }
}

/// Until there is nothing more, or as many bytes as are left.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: &AtomicUsize) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        let bytes = left.load(Ordering::Relaxed);
        let taken = count.min(bytes);
        left.store(bytes - taken, Ordering::Relaxed);
        to.write_all(&buffer[..taken]).await?;
        if taken < count || taken == 0 || taken == bytes {
            return Ok(());
        }
    }
}
