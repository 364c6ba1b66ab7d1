//! Certificates, keys and revocation lists of listeners, which are read again while the broker runs.
//!
//! Two things make the broker read the files of a listener again: SIGHUP, and a file that has changed and then stayed as it
//! is for one look. Programs that renew certificates replace several files one after the other.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Listener;
use layers::{CurrentTls, Stack};
use protocol::Instruments;
use rustls::ServerConfig;

use crate::expiry::{DAY_SECS, Expiry, InUse, Urgency, expiries};
use crate::stack;
use crate::stamp::Stamp;

/// Time between two looks at the files.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// The layers of all listeners.
pub(crate) struct Certificates {
    /// In the order of the configuration. `None` for a listener without TLS.
    listeners: Vec<Option<Watched>>,
    figures: Arc<Figures>,
    in_use: InUse,
}

/// The state of files at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Files {
    stamps: Vec<Option<Stamp>>,
    /// Hash of all contents.
    contents: u64,
}

struct Watched {
    listener: Listener,
    current: Arc<CurrentTls>,
    /// Hash of all contents behind the current configuration.
    contents: u64,
    /// The stamps of the last look.
    seen: Vec<Option<Stamp>>,
    /// The stamps have changed, and nothing has been read since.
    is_pending: bool,
    expiries: Vec<Expiry>,
}

/// The layers of a listener of another configuration, which are not in use yet.
pub(crate) struct NextLayers {
    pub(crate) stack: Arc<Stack>,
    listener: Listener,
    /// The files as they were before they were read.
    files: Files,
    /// The place of the same listener in the former configuration.
    former: Option<usize>,
    /// Certificates and rules of TLS for connections that begin from now on. `None` if they stay as they are.
    tls: Option<Arc<ServerConfig>>,
}

/// Values below `$SYS/broker/certificates/`.
#[derive(Debug, Default)]
struct Figures {
    /// Whether any listener has TLS.
    has_tls: AtomicBool,
    read: AtomicU64,
    refused: AtomicU64,
    /// Files by their urgency. Each counts once.
    files: [AtomicU64; 5],
    /// Seconds since 1970 at which the first certificate of all files expires; [`i64::MAX`] without a file.
    first_end: AtomicI64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        if !self.has_tls.load(Relaxed) {
            return;
        }
        let mut tell = |topic: &str, value: &AtomicU64| {
            say(&format!("certificates/{topic}"), value.load(Relaxed).to_string());
        };
        tell("read_again", &self.read);
        tell("refused", &self.refused);
        let topics = ["valid", "expire_in_30_days", "expire_in_7_days", "expire_in_1_day", "expired"];
        topics.iter().zip(&self.files).for_each(|(topic, value)| tell(topic, value));
        let first_end = self.first_end.load(Relaxed);
        if first_end < i64::MAX {
            say("certificates/left_seconds", first_end.saturating_sub(now_unix_secs()).to_string());
        }
    }
}

impl Files {
    /// Looks at the files of a listener. A file that cannot be read is one of its states.
    pub(crate) fn of(listener: &Listener) -> Self {
        let mut contents = DefaultHasher::new();
        for path in paths(listener) {
            contents.write(&stack::contents(path).unwrap_or_default());
            contents.write_u8(0);
        }
        Self { stamps: stamps(listener), contents: contents.finish() }
    }
}

/// The files of a listener with certificates, keys and revocation lists.
pub(crate) fn paths(listener: &Listener) -> impl Iterator<Item = &PathBuf> {
    let Listener { tls_certificate, tls_key, tls_client_ca, tls_client_crl, .. } = listener;
    [tls_certificate, tls_key, tls_client_ca, tls_client_crl].into_iter().flatten()
}

fn stamps(listener: &Listener) -> Vec<Option<Stamp>> {
    paths(listener).map(|path| Stamp::of(path)).collect()
}

impl Certificates {
    /// Reads the files of all listeners, and begins to watch them. Returns also the layers of each.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub(crate) fn open(listeners: &[Listener]) -> io::Result<(Self, Vec<Arc<Stack>>)> {
        let mut all = Self { listeners: Vec::new(), figures: Arc::default(), in_use: InUse::default() };
        let next = all.prepare(&[], listeners, &vec![None; listeners.len()])?;
        let stacks = next.iter().map(|layers| Arc::clone(&layers.stack)).collect();
        all.use_next(next);
        Ok((all, stacks))
    }

    /// Reads the files of the listeners of another configuration. `before` has the former listeners with their layers, and
    /// `former` the place of each listener among those. Nothing changes yet.
    ///
    /// # Errors
    /// A file cannot be read, or the files do not fit together. Files that may not be read any more, and that are in use, are
    /// no error.
    pub(crate) fn prepare(
        &self,
        before: &[(&Listener, &Arc<Stack>)],
        listeners: &[Listener],
        former: &[Option<usize>],
    ) -> io::Result<Vec<NextLayers>> {
        let next = |(listener, former): (&Listener, &Option<usize>)| {
            let same = former.map(|place| (before[place], self.listeners[place].as_ref()));
            let files = Files::of(listener);
            let (stack, tls) = match same {
                None => (Arc::new(stack::of(listener)?), None),
                Some(((old, stack), watched)) => {
                    let tls = watched.map_or(Ok(None), |watched| watched.prepare(listener, &files))?;
                    (stack::change(stack, old, listener)?, tls)
                }
            };
            Ok(NextLayers { stack, listener: listener.clone(), files, former: *former, tls })
        };
        listeners.iter().zip(former).map(next).collect()
    }

    /// Uses the files that were read.
    pub(crate) fn use_next(&mut self, next: Vec<NextLayers>) {
        let mut before = std::mem::take(&mut self.listeners);
        for NextLayers { stack, listener, files, former, tls } in next {
            let before = former.and_then(|place| before[place].take());
            let Some(current) = stack.tls.clone() else {
                self.listeners.push(None);
                continue;
            };
            if let Some(mut watched) = before {
                watched.listener = listener;
                watched.use_next(tls, files, &self.figures);
                self.listeners.push(Some(watched));
                continue;
            }
            let (expiries, is_pending) = (expiries(&listener), false);
            let Files { stamps: seen, contents } = files;
            self.listeners.push(Some(Watched { listener, current, contents, seen, is_pending, expiries }));
        }
        self.warn(now_unix_secs());
        self.figures.has_tls.store(!self.is_empty(), Relaxed);
    }

    /// Notes that new files have a mistake.
    pub(crate) fn refuse(&self, error: &io::Error) {
        self.figures.refused.fetch_add(1, Relaxed);
        tracing::error!(%error, "the new certificates are refused, and the earlier ones stay in use");
    }

    /// The certificates in use, for operators.
    pub(crate) fn in_use(&self) -> InUse {
        self.in_use.clone()
    }

    /// Whether there is anything to watch.
    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.iter().all(Option::is_none)
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.figures) as Arc<dyn Instruments>
    }

    /// Looks at the files once. Those that have changed before the last look, and not since, are read.
    pub(crate) fn look(&mut self) {
        for watched in self.listeners.iter_mut().flatten() {
            let stamps = stamps(&watched.listener);
            let is_still = stamps == watched.seen;
            watched.seen = stamps;
            if is_still && std::mem::take(&mut watched.is_pending) {
                watched.read_again(&self.figures);
            } else if !is_still {
                watched.is_pending = true;
            }
        }
        self.warn(now_unix_secs());
    }

    /// Writes a line for each file that has become more urgent, counts all files, and lists them for operators.
    fn warn(&mut self, now_unix_secs: i64) {
        let (mut counts, mut first_end) = ([0; 5], i64::MAX);
        let all = self.listeners.iter().flatten().flat_map(|watched| &watched.expiries);
        self.in_use.replace(all.map(|expiry| expiry.certificate.clone()).collect());
        for expiry in self.listeners.iter_mut().flatten().flat_map(|watched| &mut watched.expiries) {
            let left_secs = expiry.certificate.until_unix_secs - now_unix_secs;
            let urgency = Urgency::of(left_secs);
            counts[urgency as usize] += 1;
            first_end = first_end.min(expiry.certificate.until_unix_secs);
            if urgency > expiry.told {
                let file = wire::Shown(&expiry.certificate.file);
                if urgency == Urgency::Expired {
                    tracing::error!(%file, "a certificate has expired");
                } else {
                    tracing::warn!(%file, days = left_secs / DAY_SECS, "a certificate expires soon");
                }
            }
            expiry.told = urgency;
        }
        self.figures.files.iter().zip(counts).for_each(|(figure, count)| figure.store(count, Relaxed));
        self.figures.first_end.store(first_end, Relaxed);
    }
}

impl Watched {
    /// Reads the files of a listener that has changed, or whose files may have. Returns nothing if all is as before.
    fn prepare(&self, listener: &Listener, files: &Files) -> io::Result<Option<Arc<ServerConfig>>> {
        let is_same = stack::has_same_tls(&self.listener, listener);
        if is_same && files.contents == self.contents {
            return Ok(None);
        }
        if stack::awaits_certificate(listener) {
            if is_same {
                return Ok(None);
            }
            // The earlier certificate is better than none. The other rules are in force at once.
            return stack::tls_with_earlier(listener, &self.current.config());
        }
        match stack::tls(listener) {
            Err(error) if is_same && error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(%error, "the certificates stay as they were read at the start");
                Ok(None)
            }
            read => read,
        }
    }

    /// Uses files that were read.
    fn use_next(&mut self, tls: Option<Arc<ServerConfig>>, files: Files, figures: &Figures) {
        let listener = &self.listener.address;
        (self.seen, self.is_pending) = (files.stamps, false);
        let Some(tls) = tls else {
            return tracing::info!(%listener, "the certificates are as before");
        };
        self.current.replace(tls);
        self.contents = files.contents;
        self.expiries = expiries(&self.listener);
        figures.read.fetch_add(1, Relaxed);
        tracing::info!(%listener, "new certificates are in use");
    }

    /// Reads the files again, and uses them if they fit together. Otherwise everything stays as it is.
    fn read_again(&mut self, figures: &Figures) {
        let files = Files::of(&self.listener);
        match self.prepare(&self.listener, &files) {
            Ok(tls) => self.use_next(tls, files, figures),
            Err(error) => {
                let listener = &self.listener.address;
                figures.refused.fetch_add(1, Relaxed);
                tracing::error!(%listener, %error, "the new certificates are refused, and the earlier ones stay in use");
            }
        }
    }
}

/// The time, in seconds since 1970.
pub(crate) fn now_unix_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::{Config, Flags, Machine, Sources};

    use super::*;

    fn listener(directory: &Path, rules: &str) -> Listener {
        let text = format!(
            "data_dir = {directory:?}\n[acme]\ndomains = [\"a.example\"]\nterms_of_service_agreed = true\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls_acme = true\n{rules}"
        );
        let config = Config::parse(&Sources::of("a.toml", &text), &Flags::default(), &Machine::detect());
        config.unwrap_or_else(|report| panic!("{}", report.render(false))).listeners.remove(0)
    }

    /// Another authority is named, and the listener asks for certificates of clients from now on: that does not wait for the
    /// authority.
    #[test]
    fn stricter_rules_are_in_force_while_a_certificate_is_awaited() {
        let directory = std::env::temp_dir().join(format!("pondhawk-awaited-{}", std::process::id()));
        let before = listener(&directory, "");
        let (file, ca) = (before.tls_certificate[0].clone(), directory.join("ca.pem"));
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a temporary directory");
        std::fs::write(&file, made.signing_key.serialize_pem() + &made.cert.pem()).expect("it is ours");
        std::fs::write(&ca, made.cert.pem()).expect("it is ours");
        let (mut certificates, stacks) = Certificates::open(std::slice::from_ref(&before)).expect("files");
        let current = stacks[0].tls.clone().expect("TLS");
        let earlier = current.config();
        std::fs::remove_file(&file).expect("it is ours");
        let after = listener(
            &directory,
            &format!(
                "tls_minimum = \"1.3\"\ntls_client_certificate = \"required\"\ntls_client_ca = {ca:?}\n"
            ),
        );
        let next = certificates.prepare(&[(&before, &stacks[0])], &[after], &[Some(0)]).expect("files");
        certificates.use_next(next);
        let config = current.config();
        std::fs::remove_dir_all(&directory).expect("it is ours");
        assert!(!Arc::ptr_eq(&config, &earlier), "other rules");
        assert!(Arc::ptr_eq(&config.cert_resolver, &earlier.cert_resolver), "the same certificate");
    }
}
