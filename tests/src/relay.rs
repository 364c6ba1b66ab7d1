//! A way over TCP to a listener that speaks something else.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use client::Endpoint;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;

/// A relay in a thread of its own: each connection over TCP becomes one to the endpoint. The thread ends with the relay.
///
/// Tests that know only TCP reach every kind of listener through it. Bytes, the end of each direction, and broken
/// connections pass.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(to: Endpoint) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                tell.send(listener.local_addr().expect("it is bound")).expect("it is waited for");
                tokio::select! {
                    () = accept(listener, to) => {}
                    _ = stopped => {}
                }
            });
        });
        let address = told.recv().expect("the relay listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, to: Endpoint) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, to.clone()));
    }
}

/// An endpoint that refuses closes the connection of the client.
async fn relay(mut client: TcpStream, to: Endpoint) {
    let _ = client.set_nodelay(true);
    if let Ok(mut server) = to.connect().await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
