//! The configuration that is in force, with the sockets, certificates, users and rules behind it.
//!
//! A reload has three parts. The first two change nothing, and one mistake ends them:
//!
//! 1. The file is read and checked ([`crate::reload`]).
//! 2. Everything that can fail is done: files of users, rules and certificates are read, and new sockets are opened.
//! 3. The finished values are handed to the threads ([`net::Server`]).
//!
//! One exception needs the cooperation of the threads in the second part. If a new address needs the port of a listener that
//! goes, such as `0.0.0.0:1883` instead of `127.0.0.1:1883`, that listener closes its socket first, and gets it back if
//! anything fails. Its connections are not touched.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use admin::InForce;
use base::Realm;
use config::{Applies, Changes, Config, Listener, Origin};
use layers::Stack;
use net::{Acceptor, Dismissal, LISTENER_PLACES, Listening, Server};
use protocol::Instruments;

use crate::access::{AccessFiles, NextAccess};
use crate::acme::Acme;
use crate::certificates::{Certificates, NextCertificates};
use crate::file::{self, Loaded};
use crate::passed::Passed;
use crate::{admin as operators, banner, limits, listen};

/// The state of a running broker that a reload can change.
pub(crate) struct Running {
    pub(crate) config: Config,
    /// The origin of each value that is no default, by the names of keys.
    origins: Vec<(String, Origin)>,
    /// In the order of the configuration.
    ports: Vec<Port>,
    pub(crate) access: AccessFiles,
    pub(crate) certificates: Certificates,
    acme: Acme,
    passed: Passed,
    /// UDP sockets of listeners that are gone, until their connections are gone too.
    leaving: Vec<Leaving>,
    /// The number that was given last. Numbers are given in turn, so that a number is not used again while shards still look
    /// for connections of its former listener.
    last_number: Cell<u16>,
    /// The addresses of all listeners since the start, by their places among those whose messages are counted.
    counted: Vec<String>,
    /// The settings in force, for operators.
    in_force: Arc<Mutex<Arc<InForce>>>,
}

/// A listener as the server knows it.
struct Port {
    /// The number of the connections that it accepts.
    number: u16,
    /// The number with which it was opened.
    place: u16,
    /// Earlier numbers of connections that may still be there.
    former: Vec<u16>,
    /// The address with the actual port.
    bound: String,
    realm: Realm,
    stack: Arc<Stack>,
    /// Its place among the listeners whose messages are counted.
    counted_as: u16,
}

/// The UDP socket of a QUIC listener that is gone.
struct Leaving {
    place: u16,
    numbers: Vec<u16>,
}

/// Everything that a reload needs, and that can fail.
struct Prepared {
    config: Config,
    changes: Changes,
    access: NextAccess,
    certificates: NextCertificates,
    /// The sockets of new listeners, by their places in the configuration.
    sockets: Vec<Option<Acceptor>>,
    /// Listeners that have closed their sockets already, by their places in the former configuration.
    closed: Vec<usize>,
}

impl Running {
    /// Reads all files and opens all sockets. Returns also the listeners, and their addresses with the actual ports.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake, or an address cannot be listened on.
    pub(crate) fn open(loaded: &Loaded, passed: Passed) -> io::Result<(Self, Vec<Listening>, Vec<String>)> {
        let config = loaded.config.clone();
        let (access, realms) = AccessFiles::open_and_fetch(&config)?;
        let (certificates, stacks) = Certificates::open(&config.listeners, &config.admin)?;
        let acme = Acme::open(&config)?;
        let nothing = operators::in_force(&config, String::new(), Vec::new(), &[]);
        let mut running = Self {
            config,
            origins: loaded.origins.clone(),
            ports: Vec::new(),
            access,
            certificates,
            acme,
            passed,
            leaving: Vec::new(),
            last_number: Cell::new(0),
            counted: Vec::new(),
            in_force: Arc::new(Mutex::new(Arc::new(nothing))),
        };
        let (mut listening, mut bound) = (Vec::new(), Vec::new());
        for ((listener, (realm, stack)), number) in
            running.config.listeners.iter().zip(realms.into_iter().zip(stacks)).zip(0..)
        {
            let socket = listen::open(listener, &mut running.passed)?;
            let address = listen::bound(listener, &socket)?;
            bound.push(address.clone());
            let rules = listen::rules(listener, &stack, realm, number);
            listening.push(Listening { socket, rules });
            running.counted.push(listener.address.to_string());
            running.ports.push(Port {
                number,
                place: number,
                former: Vec::new(),
                bound: address,
                realm,
                stack,
                counted_as: number,
            });
            running.last_number.set(number);
        }
        running.note();
        Ok((running, listening, bound))
    }

    /// Begins to obtain and to renew the certificate of `[acme]`, whose authority asks the listeners.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn begin_acme(&mut self) -> io::Result<()> {
        self.acme.begin()?;
        self.want_certificate()
    }

    fn want_certificate(&self) -> io::Result<()> {
        let stacks = self.ports.iter().map(|port| &port.stack);
        self.acme.want(&self.config, self.config.listeners.iter().zip(stacks))
    }

    /// The settings in force, for operators. They are kept up to date. The configuration names files with secrets, and has
    /// none itself.
    pub(crate) fn in_force(&self) -> Arc<Mutex<Arc<InForce>>> {
        Arc::clone(&self.in_force)
    }

    /// Notes the settings in force for operators.
    fn note(&self) {
        let listeners =
            self.config.listeners.iter().zip(&self.ports).map(|(listener, port)| admin::Listener {
                address: port.bound.clone(),
                transport: banner::kind(listener, &port.bound),
                websocket_path: banner::websocket_path(listener, &port.bound),
                has_tls: !listener.tls_certificate.is_empty(),
                numbers: port.former.iter().copied().chain([port.number]).collect(),
                counted_as: port.counted_as,
            });
        let toml = file::without_queries(&self.config.to_toml_with_origins(&self.origins));
        let realms: Vec<Realm> = self.ports.iter().map(|port| port.realm).collect();
        let in_force = operators::in_force(&self.config, toml, listeners.collect(), &realms);
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
    }

    /// The origin of each value that is no default, by the names of keys.
    pub(crate) fn origins(&self) -> &[(String, Origin)] {
        &self.origins
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Vec<Arc<dyn Instruments>> {
        let of_access = self.access.instruments();
        of_access.into_iter().chain([self.certificates.instruments(), self.acme.instruments()]).collect()
    }

    /// Whether there is no file and no socket to look at from time to time.
    pub(crate) fn is_still(&self) -> bool {
        self.certificates.is_empty() && self.access.is_empty() && self.leaving.is_empty()
    }

    /// Puts another configuration in the place of this one, as far as the keys that have changed need no restart.
    ///
    /// # Errors
    /// A file cannot be read or has a mistake, or an address cannot be listened on. Nothing has changed then.
    pub(crate) fn reload(
        &mut self,
        new: &Config,
        origins: &[(String, Origin)],
        server: &Server,
    ) -> io::Result<Changes> {
        self.forget_sockets(server);
        let prepared = self.prepare(new, server)?;
        let Prepared { config, changes, .. } = &prepared;
        self.origins = config::origins_after(&self.origins, origins, changes, &config.listeners);
        Ok(self.commit(prepared, server))
    }

    /// Closes UDP sockets whose connections are gone.
    pub(crate) fn forget_sockets(&mut self, server: &Server) {
        self.leaving.retain(|leaving| {
            let is_used = leaving.numbers.iter().any(|number| server.connections_of(*number) > 0);
            if !is_used && let Err(error) = server.forget_quic(leaving.place) {
                tracing::warn!(%error, "the socket of a listener that was removed stays open");
            }
            is_used
        });
    }

    fn prepare(&mut self, new: &Config, server: &Server) -> io::Result<Prepared> {
        let mut config = self.config.clone();
        let changes = config.take_over(new);
        let realms: Vec<Realm> = self.ports.iter().map(|port| port.realm).collect();
        let access = self
            .access
            .prepare(&realms, &config, &changes.former)
            .inspect_err(|error| self.access.refuse(error))?;
        let stacks = self.ports.iter().map(|port| &port.stack);
        let before: Vec<(&Listener, &Arc<Stack>)> = self.config.listeners.iter().zip(stacks).collect();
        let certificates = self
            .certificates
            .prepare(&before, &config.listeners, &changes.former)
            .inspect_err(|error| self.certificates.refuse(error))?;
        let mut prepared =
            Prepared { config, changes, access, certificates, sockets: Vec::new(), closed: Vec::new() };
        match self.open_sockets(&mut prepared, server) {
            Ok(()) => Ok(prepared),
            Err(error) => {
                self.give_back(prepared, server);
                Err(error)
            }
        }
    }

    /// Opens the sockets of new listeners.
    fn open_sockets(&mut self, prepared: &mut Prepared, server: &Server) -> io::Result<()> {
        for (listener, former) in prepared.config.listeners.iter().zip(&prepared.changes.former) {
            if former.is_some() {
                prepared.sockets.push(None);
                continue;
            }
            let mut opened = listen::open(listener, &mut self.passed);
            if is_in_use(&opened) {
                for place in &prepared.changes.removed {
                    let removed = &self.config.listeners[*place];
                    if removed.address.shares_port(&listener.address) && !prepared.closed.contains(place) {
                        server.close_listener(self.ports[*place].number)?;
                        prepared.closed.push(*place);
                    }
                }
                opened = listen::open(listener, &mut self.passed);
            }
            prepared.sockets.push(Some(opened?));
        }
        Ok(())
    }

    /// Opens the sockets again that were closed for others.
    fn give_back(&mut self, prepared: Prepared, server: &Server) {
        drop(prepared.sockets);
        for place in prepared.closed {
            let (listener, port) = (&self.config.listeners[place], &mut self.ports[place]);
            let rules = listen::rules(listener, &port.stack, port.realm, port.counted_as);
            let opened = listen::open(listener, &mut self.passed)
                .and_then(|socket| server.open_listener(port.number, Listening { socket, rules }));
            if let Err(error) = opened {
                tracing::error!(%error, "a listener is closed that was to stay open");
            }
            port.place = port.number;
        }
    }

    /// Hands the finished values to the threads. Rules come first: a new listener may have new ones.
    fn commit(&mut self, prepared: Prepared, server: &Server) -> Changes {
        let Prepared { config, changes, access, certificates, sockets, closed } = prepared;
        let realms: Vec<Realm> = (0..config.listeners.len()).map(|place| access.realm(place)).collect();
        let stacks = certificates.stacks();
        if let Some(realms) = self.access.use_next(access) {
            server.replace_realms(realms);
            self.access.tell_in_use();
        }
        self.certificates.use_next(certificates);
        let mut before: Vec<Option<Port>> = std::mem::take(&mut self.ports).into_iter().map(Some).collect();
        for place in &changes.removed {
            if let Some(port) = before[*place].take() {
                self.remove(port, *place, closed.contains(place), server);
            }
        }
        self.access.fetch_keys(&config);
        let earlier = std::mem::replace(&mut self.config, config);
        if changes.keys.iter().any(|change| change.applies != Applies::Restart)
            && !server.change_limits(&limits::of(&self.config))
        {
            tracing::warn!("a thread is busy, and takes over the new limits later");
        }
        let places = changes.former.iter().zip(realms.into_iter().zip(stacks)).zip(sockets);
        for (place, ((former, (realm, stack)), socket)) in places.enumerate() {
            let port = match former.and_then(|former| Some((former, before[former].take()?))) {
                Some((former, port)) => {
                    self.change((port, &earlier.listeners[former]), place, (realm, stack), &before, server)
                }
                None => self.add(place, socket, (realm, stack), &before, server),
            };
            self.ports.push(port);
        }
        self.note();
        if let Err(error) = self.want_certificate() {
            tracing::error!(%error, "the certificate of ACME is neither obtained nor renewed");
        }
        changes
    }

    fn remove(&mut self, port: Port, place: usize, is_closed: bool, server: &Server) {
        let is_quic = self.config.listeners[place].address.is_quic();
        if !is_closed && let Err(error) = server.close_listener(port.number) {
            tracing::error!(%error, "a listener that was removed may still accept connections");
        }
        let mut numbers = port.former;
        numbers.push(port.number);
        numbers.iter().for_each(|number| server.dismiss(*number, Dismissal::Everybody, is_quic));
        if is_quic {
            self.leaving.push(Leaving { place: port.place, numbers });
        }
    }

    fn change(
        &self,
        (mut port, old): (Port, &Listener),
        place: usize,
        (realm, stack): (Realm, Arc<Stack>),
        others: &[Option<Port>],
        server: &Server,
    ) -> Port {
        let new = &self.config.listeners[place];
        let whom = dismissal(old, new, port.realm == realm);
        if old == new && Arc::ptr_eq(&stack, &port.stack) && whom.is_none() {
            return port;
        }
        let next = if whom.is_some() { self.free_number(others, server) } else { Some(port.number) };
        let Some(next) = next else {
            tracing::error!(
                "too many listeners have connections that leave: {} stays as it was",
                new.address
            );
            return port;
        };
        let rules = listen::rules(new, &stack, realm, port.counted_as);
        if let Err(error) = server.change_listener(port.number, next, rules) {
            tracing::error!(%error, "a listener may have its earlier rules");
        }
        (port.realm, port.stack) = (realm, stack);
        port.former.retain(|number| server.connections_of(*number) > 0);
        if next != port.number {
            port.former.push(std::mem::replace(&mut port.number, next));
        }
        if let Some(whom) = whom {
            let is_quic = new.address.is_quic();
            port.former.iter().for_each(|number| server.dismiss(*number, whom, is_quic));
        }
        port
    }

    fn add(
        &mut self,
        place: usize,
        socket: Option<Acceptor>,
        (realm, stack): (Realm, Arc<Stack>),
        others: &[Option<Port>],
        server: &Server,
    ) -> Port {
        let number = self.free_number(others, server).unwrap_or(LISTENER_PLACES - 1);
        let counted_as = self.counted_as(&self.config.listeners[place].address.to_string(), others);
        let listener = &self.config.listeners[place];
        let rules = listen::rules(listener, &stack, realm, counted_as);
        let address = socket.as_ref().map(|socket| listen::bound(listener, socket));
        let address = address.and_then(Result::ok).unwrap_or_else(|| listener.address.to_string());
        let opened = match socket {
            Some(socket) => server.open_listener(number, Listening { socket, rules }),
            None => Ok(()),
        };
        match opened {
            Ok(()) => tracing::info!("listening on {address} ({})", banner::kind(listener, &address)),
            Err(error) => tracing::error!(%error, "cannot listen on {address}"),
        }
        Port { number, place: number, former: Vec::new(), bound: address, realm, stack, counted_as }
    }

    /// The place of a new listener among those whose messages are counted: that of a former one with the same address, or a new
    /// one. When all places are used, the last one is for several.
    fn counted_as(&mut self, address: &str, others: &[Option<Port>]) -> u16 {
        let ports = || self.ports.iter().chain(others.iter().flatten());
        let is_free = |place: usize| ports().all(|port| usize::from(port.counted_as) != place);
        let former = self.counted.iter().enumerate();
        let mut former = former.filter(|(_, known)| *known == address).map(|(place, _)| place);
        let place = former.find(|place| is_free(*place)).unwrap_or_else(|| {
            if self.counted.len() < usize::from(LISTENER_PLACES) {
                self.counted.push(address.to_owned());
            }
            self.counted.len() - 1
        });
        u16::try_from(place).expect("there are fewer places")
    }

    /// A number that neither a listener nor a connection has.
    fn free_number(&self, others: &[Option<Port>], server: &Server) -> Option<u16> {
        let is_of = |port: &Port, number: u16| {
            port.number == number || port.place == number || port.former.contains(&number)
        };
        let is_used = |number: u16| {
            self.ports.iter().chain(others.iter().flatten()).any(|port| is_of(port, number))
                || self
                    .leaving
                    .iter()
                    .any(|leaving| leaving.place == number || leaving.numbers.contains(&number))
                || server.connections_of(number) > 0
        };
        let after = self.last_number.get() + 1;
        let number = (after..LISTENER_PLACES).chain(0..after).find(|number| !is_used(*number))?;
        self.last_number.set(number);
        Some(number)
    }
}

/// The connections that leave after a change of their listener. The rules are in docs/RELOAD.md.
fn dismissal(old: &Listener, new: &Listener, has_same_realm: bool) -> Option<Dismissal> {
    let has_tls = |listener: &Listener| !listener.tls_certificate.is_empty();
    let is_other = !has_same_realm
        || old.client_certificate_identity != new.client_certificate_identity
        || old.unix_identity != new.unix_identity
        || has_tls(old) != has_tls(new)
        || old.tls_optional != new.tls_optional
        || old.tls_client_certificate != new.tls_client_certificate
        || old.tls_client_ca != new.tls_client_ca
        || old.proxy_from != new.proxy_from
        || old.mount_point != new.mount_point;
    if is_other {
        Some(Dismissal::Everybody)
    } else if old.allow_anonymous && !new.allow_anonymous {
        Some(Dismissal::Strangers)
    } else if old.password_file.is_none() && new.password_file.is_some()
        || !old.jwt && new.jwt
        || !old.http_auth && new.http_auth
        || !old.ldap && new.ldap
    {
        Some(Dismissal::Unproved)
    } else {
        None
    }
}

fn is_in_use(opened: &io::Result<Acceptor>) -> bool {
    opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}
