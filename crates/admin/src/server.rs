//! The thread of the server: connections, their limits, and the way of a request.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::Operator;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::admit::admit;
use crate::answer::{Answer, Failure};
use crate::api;
use crate::asked::Asked;
use crate::audit::{Change, Trail};
use crate::audit_file::AuditFile;
use crate::control::Control;
use crate::counters::{Counters, Refusal};
use crate::doors::{Admission, Doors, Visitor};
use crate::gate::{self, Hosts};
use crate::room::Room;
use crate::routes::{self, Match};
use crate::secure::{Handshaken, Pace, Proof, Secure, Unsafe};
use crate::sessions::Sessions;
use crate::slow::Timed;
use crate::tokens::{Attempts, Tokens};
use crate::uri;

/// Maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Pause after a failure to accept, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The settings of the server.
pub struct Settings {
    /// The socket, which listens.
    pub socket: TcpListener,
    /// TLS, if the server speaks it.
    pub secure: Option<Secure>,
    /// Names of the server beside its address and `localhost`.
    pub hosts: Vec<String>,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum size of a body.
    pub body_bytes_max: usize,
    /// Maximum number of bans.
    pub bans_max: usize,
    /// Maximum number of clients whose last messages are recorded.
    pub recorded_clients_max: usize,
    /// Maximum number of messages in the record of a client, on each thread.
    pub recorded_messages_max: usize,
    /// Maximum number of changes that are listed.
    pub changes_max: usize,
    /// The file with all changes, if there is to be one.
    pub audit_file: Option<AuditFile>,
    /// Time for each request, and for each response.
    pub request_timeout: Duration,
    /// Time from a login with a password until the operator must log in again.
    pub session_time: Duration,
    /// Tokens with their roles.
    pub tokens: Tokens,
    /// Version of the broker.
    pub version: &'static str,
}

/// The running server. It ends when this is dropped.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server is no reason for another one.
            let _ = thread.join();
        }
    }
}

/// The state that all requests share.
pub(crate) struct Shared {
    pub(crate) operator: Operator,
    pub(crate) control: Box<dyn Control>,
    pub(crate) version: &'static str,
    pub(crate) counters: Counters,
    hosts: Hosts,
    pub(crate) secure: Option<Secure>,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: Sessions,
    /// Wrong tokens and passwords, and passwords that are being checked.
    pub(crate) attempts: Mutex<Attempts>,
    /// Wrong ones alone, for the lines of the log.
    pub(crate) guesses: Mutex<Attempts>,
    /// Requests for changes that have no record.
    refused: Mutex<Attempts>,
    room: Room,
    pub(crate) bans_max: usize,
    pub(crate) drains: api::Drains,
    pub(crate) traces: api::Traces,
    pub(crate) recordings: api::Recordings,
    pub(crate) trail: Trail,
    body_bytes_max: usize,
    request_timeout: Duration,
}

impl Shared {
    /// Notes a request for a change that has no record. Returns `None` if its address has sent too many for a line each.
    pub(crate) fn note_refused(&self, from: IpAddr) -> Option<u32> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).wrong(from, std::time::Instant::now())
    }
}

/// Starts the thread of the server.
///
/// # Errors
/// The system refuses the socket, the event loop or the thread.
pub fn start(settings: Settings, operator: Operator, control: Box<dyn Control>) -> io::Result<Running> {
    let Settings {
        socket,
        secure,
        hosts,
        connections_max,
        body_bytes_max,
        bans_max,
        recorded_clients_max,
        recorded_messages_max,
        changes_max,
        audit_file,
        request_timeout,
        session_time,
        tokens,
        version,
    } = settings;
    socket.set_nonblocking(true)?;
    let shared = Arc::new(Shared {
        operator,
        control,
        version,
        counters: Counters::default(),
        hosts: Hosts::new(socket.local_addr()?.ip(), &hosts),
        secure,
        tokens,
        sessions: Sessions::new(session_time),
        attempts: Mutex::default(),
        guesses: Mutex::default(),
        refused: Mutex::default(),
        room: Room::default(),
        bans_max,
        drains: api::Drains::default(),
        traces: api::Traces::default(),
        recordings: api::Recordings::new(recorded_clients_max, recorded_messages_max),
        trail: Trail::new(changes_max, audit_file)?,
        body_bytes_max,
        request_timeout,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
        // A list of many clients takes milliseconds of a processor, which may be that of a shard.
        net::give_way();
        let accepting = async {
            tokio::spawn(accept(socket, shared, connections_max));
            // The sender is dropped, and never sends.
            let _ = stopped.await;
        };
        runtime.block_on(accepting);
        runtime.shutdown_background();
    })?;
    Ok(Running { stop: Some(stop), thread: Some(thread) })
}

async fn accept(socket: TcpListener, shared: Arc<Shared>, connections_max: usize) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the admin server cannot accept"),
    };
    let doors = Doors::new(connections_max);
    let per_second = shared.secure.as_ref().map(|secure| secure.handshakes_per_second);
    let mut pace = per_second.map(|per_second| Pace::new(per_second, tokio::time::Instant::now()));
    loop {
        let (stream, from) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Others wait in the queue of the system meanwhile.
        if let Some(pace) = &mut pace
            && pace.turn().await
        {
            shared.counters.handshake_delayed();
        }
        let admission = doors.admit().await;
        if !matches!(admission, Admission::Admitted { has_displaced: false, .. }) {
            shared.counters.refused(Refusal::Connections);
        }
        let Admission::Admitted { visitor, .. } = admission else { continue };
        let (number, shared) = (visitor.number(), Arc::clone(&shared));
        let task = tokio::spawn(greet(stream, Peer { from, visitor, proof: None }, shared));
        doors.note(number, task.abort_handle());
    }
}

/// The other end of a connection.
pub(crate) struct Peer {
    pub(crate) from: SocketAddr,
    pub(crate) visitor: Visitor,
    /// Its certificate, with TLS.
    pub(crate) proof: Option<Proof>,
}

/// Makes the handshake of a connection, if the server speaks TLS, and serves it.
async fn greet(stream: tokio::net::TcpStream, peer: Peer, shared: Arc<Shared>) {
    let within = shared.request_timeout;
    let Some(secure) = &shared.secure else {
        return serve_connection(Timed::new(stream, within), peer, shared).await;
    };
    match secure.accept(stream, peer.from, within).await {
        Ok(Handshaken { stream, proof }) => {
            let peer = Peer { proof: Some(proof), ..peer };
            serve_connection(stream, peer, shared).await;
        }
        Err(Unsafe::Slow) => shared.counters.refused(Refusal::Slow),
        Err(Unsafe::Failed) => shared.counters.refused(Refusal::Tls),
    }
}

async fn serve_connection<S>(stream: S, peer: Peer, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let peer = Arc::new(peer);
    let service = service_fn(|request| {
        let (shared, peer) = (Arc::clone(&shared), Arc::clone(&peer));
        async move { Ok::<_, std::convert::Infallible>(respond(request, &peer, &shared).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.request_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service)
        .await;
    if served.is_err_and(|error| error.is_timeout() || is_timed_out(&error)) {
        shared.counters.refused(Refusal::Slow);
    }
}

/// Whether a connection has failed because its client was slow.
fn is_timed_out(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

async fn respond(
    request: Request<Incoming>,
    peer: &Arc<Peer>,
    shared: &Arc<Shared>,
) -> Response<Full<Bytes>> {
    let answer = answer(request, peer, shared).await.unwrap_or_else(|answer| answer);
    shared.counters.answered();
    answer.into_response(&shared.room)
}

/// Serves a request. An error is an answer too.
async fn answer(
    request: Request<Incoming>,
    peer: &Arc<Peer>,
    shared: &Arc<Shared>,
) -> Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    if !shared.hosts.admits(&head.headers) {
        shared.counters.refused(Refusal::Host);
        let text = "this server has another name; add it to `hosts` of [admin]";
        return Err(Answer::from(Failure(StatusCode::MISDIRECTED_REQUEST, text.to_owned())).closing());
    }
    let (route, values) = match routes::find(head.method.as_str(), head.uri.path()) {
        Match::Found(route, values) => (route, values),
        Match::OtherMethod => {
            let text = "this path has other methods".to_owned();
            return Err(Failure(StatusCode::METHOD_NOT_ALLOWED, text).into());
        }
        Match::Unknown => return Err(Failure::not_found("there is no such path").into()),
    };
    let holder = admit(&head.headers, route, peer, shared).await;
    let holder = holder.map_err(|refusal| refusal.answer(route, &values, peer.from, shared))?;
    let query = uri::parameters(head.uri.query().unwrap_or_default());
    let query = query.ok_or_else(|| Failure::bad("the query is not well-formed"))?;
    route.misfit(&query).map_or(Ok(()), |why| Err(Failure::bad(why)))?;
    let body = read_body(&head.headers, body, !route.body.is_empty(), shared).await?;
    let asked = Asked::new((route, values), query, body, (holder, peer.from, gate::host(&head.headers)));
    if route.method == "GET" {
        return Ok(api::carry_out(&asked, shared).await.unwrap_or_else(Answer::from));
    }
    // This future is dropped if the client hangs up. A change that has begun goes on.
    let changing = tokio::spawn(change(asked, Arc::clone(peer), Arc::clone(shared)));
    let failed = |_| Failure(StatusCode::INTERNAL_SERVER_ERROR, "the request has failed".to_owned()).into();
    changing.await.map_err(failed)
}

/// Carries out a change. The connection keeps its place until the end of the change, so that these are bounded too.
async fn change(asked: Asked, _peer: Arc<Peer>, shared: Arc<Shared>) -> Answer {
    let change = Change::new(asked, Arc::clone(&shared));
    let answer = api::carry_out(&change.asked, &shared).await.unwrap_or_else(Answer::from);
    change.end(&answer).await;
    answer
}

/// Reads the body of a request. One that the route does not want must be empty.
async fn read_body(
    headers: &HeaderMap,
    body: Incoming,
    is_wanted: bool,
    shared: &Shared,
) -> Result<Bytes, Answer> {
    let bytes_max = if is_wanted { shared.body_bytes_max } else { 0 };
    let too_large = || {
        shared.counters.refused(Refusal::Body);
        let text = format!("the body has more than {bytes_max} bytes");
        Answer::from(Failure(StatusCode::PAYLOAD_TOO_LARGE, text)).closing()
    };
    let collected = match timeout(shared.request_timeout, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(Answer::from(Failure::bad("the body is not complete")).closing()),
        Err(_) => {
            shared.counters.refused(Refusal::Slow);
            let text = "the body has not come in time".to_owned();
            return Err(Answer::from(Failure(StatusCode::REQUEST_TIMEOUT, text)).closing());
        }
    };
    // A form of a foreign page cannot have this type.
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json =
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if is_wanted && !is_json {
        let text = "the body is to be application/json".to_owned();
        return Err(Failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into());
    }
    Ok(collected)
}
