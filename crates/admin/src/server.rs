//! The thread of the server: connections, their limits, and the way of a request.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use auth::Bans;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::Operator;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::{Answer, Failure};
use crate::api;
use crate::counters::{Counters, Refusal};
use crate::doors::{Admission, Doors, Visitor};
use crate::gate::{self, Hosts};
use crate::room::Room;
use crate::routes::{self, Match, Route};
use crate::slow::Timed;
use crate::tokens::{Attempts, Role, Tokens};
use crate::uri;

/// Maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Fields of a body that name the thing that a request is about.
const OBJECTS: [&str; 6] = ["topic", "kind", "value", "server_reference", "level", "name"];
/// Pause after a failure to accept, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The settings of the server.
pub struct Settings {
    /// The socket, which listens.
    pub socket: TcpListener,
    /// Names of the server beside its address and `localhost`.
    pub hosts: Vec<String>,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum size of a body.
    pub body_bytes_max: usize,
    /// Maximum number of bans.
    pub bans_max: usize,
    /// Time for each request, and for each response.
    pub request_timeout: Duration,
    /// Tokens with their roles.
    pub tokens: Tokens,
    /// Version of the broker.
    pub version: &'static str,
}

/// The settings of the broker that are in force. A reload puts others in their place.
#[derive(Debug, Clone)]
pub struct InForce {
    /// The configuration as a file in TOML, without secrets.
    pub configuration: String,
    /// Listeners for MQTT, in the order of the configuration.
    pub listeners: Vec<Listener>,
    /// The limit of the queue of a session.
    pub queue: Queue,
    /// Maximum number of levels of a topic.
    pub topic_levels_max: usize,
}

impl InForce {
    /// The listener that has accepted connections under a number. `None` if a reload has removed it.
    pub(crate) fn listener(&self, number: u16) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.numbers.contains(&number))
    }
}

/// A listener for MQTT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its address, with the actual port.
    pub address: String,
    /// Its transports and protocols in words.
    pub transport: String,
    /// The numbers of its connections. A reload can give it a further one.
    pub numbers: Vec<u16>,
}

impl Listener {
    /// The number of its connections.
    pub(crate) fn connections(&self, operator: &Operator) -> usize {
        self.numbers.iter().map(|number| operator.connections_of(*number)).sum()
    }
}

/// The limit of the queue of a session, for explanations.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// Maximum number of messages that wait for one session.
    pub messages_max: usize,
    /// Maximum size of these messages, in bytes.
    pub bytes_max: usize,
    /// The rule for a full queue, as the configuration writes it.
    pub when_full: &'static str,
}

/// A backup of the journal.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Name of its directory.
    pub name: String,
    /// How far it is.
    pub state: BackupState,
    /// Bytes that were copied. Segments that the broker reuses meanwhile are copied again.
    pub copied_bytes: u64,
    /// The size of the journal when the backup began, in bytes.
    pub total_bytes: u64,
    /// The time that it has taken.
    pub seconds: u64,
    /// At the end: what was copied, or why it has failed.
    pub text: Option<String>,
}

/// The state of a [`Backup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupState {
    /// A backup copies files.
    Copying,
    /// The copy is read.
    Checking,
    /// The copy is whole.
    Done,
    /// There is no copy.
    Failed,
}

/// The reason why a backup does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupRefused {
    /// There is no journal, or no directory for backups.
    Off,
    /// The name is no name of a directory.
    Name,
    /// There is something of this name.
    Exists,
    /// Another backup is under way.
    Running,
    /// The system refuses a thread.
    Failed(String),
}

/// The parts of the process that only its main thread can change.
pub trait Control: Send + Sync {
    /// The settings in force.
    fn in_force(&self) -> Arc<InForce>;
    /// Begins to read configuration, certificates, users and rules again.
    fn reload(&self);
    /// The level of the log, as the configuration names it.
    fn log_level(&self) -> &'static str;
    /// Changes the level of the log until the next reload. A word that is no level has no effect.
    fn set_log_level(&self, level: &str);
    /// Begins a backup of the journal into a new directory of this name, on a thread of its own.
    ///
    /// # Errors
    /// It cannot begin now.
    fn begin_backup(&self, name: &str) -> Result<(), BackupRefused>;
    /// The last backup since the start, which may be under way.
    fn last_backup(&self) -> Option<Backup>;
    /// Begins to end the broker, as SIGTERM does.
    fn stop(&self);
    /// Stores all bans for the next start.
    ///
    /// # Errors
    /// They cannot be stored. The error says why.
    fn store_bans(&self, bans: &Bans) -> Result<(), String>;
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
    tokens: Tokens,
    attempts: Mutex<Attempts>,
    room: Room,
    pub(crate) bans_max: usize,
    pub(crate) drains: api::Drains,
    pub(crate) traces: api::Traces,
    body_bytes_max: usize,
    request_timeout: Duration,
}

/// A request whose token has the right to its route.
pub(crate) struct Asked {
    pub(crate) route: &'static Route,
    /// Values of the parameters in its path.
    pub(crate) values: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) role: Option<Role>,
    pub(crate) from: SocketAddr,
}

impl Asked {
    /// The thing that the request is about: a client identifier, a topic, or the kind and value of a ban. Empty if it is about
    /// the whole broker.
    fn object(&self) -> String {
        let of_body = || {
            let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let texts = OBJECTS.into_iter().filter_map(|field| body.get(field)?.as_str());
            texts.collect::<Vec<_>>().join(" ")
        };
        let of_path = self.values.iter().map(String::as_str).chain(self.parameter("filter"));
        if self.values.is_empty() { of_body() } else { of_path.collect::<Vec<_>>().join(" ") }
    }

    /// A parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// Starts the thread of the server.
///
/// # Errors
/// The system refuses the socket, the event loop or the thread.
pub fn start(settings: Settings, operator: Operator, control: Box<dyn Control>) -> io::Result<Running> {
    let Settings {
        socket,
        hosts,
        connections_max,
        body_bytes_max,
        bans_max,
        request_timeout,
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
        tokens,
        attempts: Mutex::default(),
        room: Room::default(),
        bans_max,
        drains: api::Drains::default(),
        traces: api::Traces::default(),
        body_bytes_max,
        request_timeout,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
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
    loop {
        let (stream, from) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admission = doors.admit().await;
        if !matches!(admission, Admission::Admitted { has_displaced: false, .. }) {
            shared.counters.refused(Refusal::Connections);
        }
        let Admission::Admitted { visitor, .. } = admission else { continue };
        let (number, shared) = (visitor.number(), Arc::clone(&shared));
        let task = tokio::spawn(serve_connection(stream, Peer { from, visitor }, shared));
        doors.note(number, task.abort_handle());
    }
}

/// The other end of a connection.
struct Peer {
    from: SocketAddr,
    visitor: Visitor,
}

async fn serve_connection(stream: tokio::net::TcpStream, peer: Peer, shared: Arc<Shared>) {
    let io = TokioIo::new(Timed::new(stream, shared.request_timeout));
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
    let role = admit(&head.headers, route, peer, shared)?;
    let query = uri::parameters(head.uri.query().unwrap_or_default());
    let query = query.ok_or_else(|| Failure::bad("the query is not well-formed"))?;
    route.misfit(&query).map_or(Ok(()), |why| Err(Failure::bad(why)))?;
    let body = read_body(&head.headers, body, !route.body.is_empty(), shared).await?;
    let asked = Asked { route, values, query, body, role, from: peer.from };
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
    let mut change = Change { asked, status: StatusCode::INTERNAL_SERVER_ERROR };
    let answer = api::carry_out(&change.asked, &shared).await.unwrap_or_else(Answer::from);
    change.status = answer.status;
    answer
}

/// A change under way. Its end has a line in the log, even if that is a failure of the broker, or the end of the server.
struct Change {
    asked: Asked,
    status: StatusCode,
}

impl Drop for Change {
    fn drop(&mut self) {
        audit(&self.asked, self.status);
    }
}

/// The role of the request's token, if the route needs one.
fn admit(headers: &HeaderMap, route: &Route, peer: &Peer, shared: &Shared) -> Result<Option<Role>, Answer> {
    let role = gate::token(headers).and_then(|token| shared.tokens.role(token));
    if role.is_some() {
        peer.visitor.is_known();
    }
    let Some(needed) = route.role else { return Ok(role) };
    match role {
        Some(role) if role >= needed => Ok(Some(role)),
        Some(role) => {
            shared.counters.refused(Refusal::Role);
            let text = format!("the role {} has not this right, {} has", role.word(), needed.word());
            Err(Failure(StatusCode::FORBIDDEN, text).into())
        }
        None => {
            let mut attempts = shared.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            if attempts.wrong(peer.from.ip(), Instant::now()) {
                shared.counters.refused(Refusal::Guessing);
                let text = "too many wrong tokens have come from this address".to_owned();
                return Err(Answer::from(Failure(StatusCode::TOO_MANY_REQUESTS, text)).closing());
            }
            shared.counters.refused(Refusal::Token);
            let text = "a token is needed: Authorization: Bearer TOKEN".to_owned();
            Err(Answer::from(Failure(StatusCode::UNAUTHORIZED, text)).closing())
        }
    }
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

/// Writes a line about a change to the log, whether it was carried out or not.
fn audit(asked: &Asked, status: StatusCode) {
    let Asked { route, role, from, .. } = asked;
    let on = asked.object();
    tracing::warn!(
        audit = true,
        action = ?route.action,
        on,
        role = role.map_or("", Role::word),
        %from,
        status = status.as_u16(),
        "an operator has asked for a change"
    );
}
