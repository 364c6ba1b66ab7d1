//! Certificates, keys and revocation lists of listeners and of the server for operators, which are read again while the broker runs.
//!
//! Two things make the broker read the files of a listener again: SIGHUP, and a file that has changed and then stayed as it
//! is for one look. Programs that renew certificates replace several files one after the other.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Admin, Listener};
use layers::{CurrentTls, Stack};
use protocol::Instruments;
use rustls::ServerConfig;

use crate::expiry::{DAY_SECS, Expiry, InUse, Urgency, expiries};
use crate::stack;
use crate::stamp::Stamp;
use crate::tls_files::TlsFiles;

/// Time between two looks at the files.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// The layers of all listeners.
pub(crate) struct Certificates {
    /// In the order of the configuration. `None` for a listener without TLS.
    listeners: Vec<Option<Watched>>,
    /// Those of the server for operators, if it has TLS.
    admin: Option<Watched>,
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
    tls: TlsFiles,
    current: Arc<CurrentTls>,
    /// Hash of all contents behind the current configuration.
    contents: u64,
    /// The stamps of the last look.
    seen: Vec<Option<Stamp>>,
    /// The stamps have changed, and nothing has been read since.
    is_pending: bool,
    expiries: Vec<Expiry>,
}

/// The files of another configuration, which are not in use yet.
pub(crate) struct NextCertificates {
    layers: Vec<NextLayers>,
    /// Those of the server for operators, whose keys need a restart.
    admin: Option<NextTls>,
}

/// The layers of a listener of another configuration.
struct NextLayers {
    stack: Arc<Stack>,
    /// The place of the same listener in the former configuration.
    former: Option<usize>,
    next: NextTls,
}

/// The files of TLS at one place.
struct NextTls {
    tls: TlsFiles,
    /// The files as they were before they were read.
    files: Files,
    /// Certificates and rules of TLS for connections that begin from now on. `None` if they stay as they are.
    config: Option<Arc<ServerConfig>>,
}

impl NextCertificates {
    /// The layers of each listener.
    pub(crate) fn stacks(&self) -> Vec<Arc<Stack>> {
        self.layers.iter().map(|layers| Arc::clone(&layers.stack)).collect()
    }
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
    /// Looks at files. One that cannot be read is one of their states.
    pub(crate) fn of(tls: &TlsFiles) -> Self {
        let mut contents = DefaultHasher::new();
        for path in tls.paths() {
            contents.write(&stack::contents(path).unwrap_or_default());
            contents.write_u8(0);
        }
        Self { stamps: stamps(tls), contents: contents.finish() }
    }
}

fn stamps(tls: &TlsFiles) -> Vec<Option<Stamp>> {
    tls.paths().map(|path| Stamp::of(path)).collect()
}

impl Certificates {
    /// Reads the files of all listeners and of the server for operators, and begins to watch them. Returns also the layers of
    /// each listener.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub(crate) fn open(listeners: &[Listener], admin: &Admin) -> io::Result<(Self, Vec<Arc<Stack>>)> {
        let (figures, in_use) = (Arc::default(), InUse::default());
        let mut all = Self { listeners: Vec::new(), admin: None, figures, in_use };
        let next = all.prepare(&[], listeners, &vec![None; listeners.len()])?;
        all.admin = TlsFiles::of_admin(admin).map(Watched::read).transpose()?.flatten();
        let stacks = next.stacks();
        all.use_next(next);
        Ok((all, stacks))
    }

    /// The certificates and rules of the server for operators, if it has TLS.
    pub(crate) fn of_admin(&self) -> Option<Arc<CurrentTls>> {
        self.admin.as_ref().map(|watched| Arc::clone(&watched.current))
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
    ) -> io::Result<NextCertificates> {
        let next = |(listener, former): (&Listener, &Option<usize>)| {
            let same = former.map(|place| (before[place], self.listeners[place].as_ref()));
            let tls = TlsFiles::of(listener);
            let files = Files::of(&tls);
            let (stack, config) = match same {
                None => (Arc::new(stack::of(listener)?), None),
                Some(((old, stack), watched)) => {
                    let config = watched.map_or(Ok(None), |watched| watched.prepare(&tls, &files))?;
                    (stack::change(stack, old, listener)?, config)
                }
            };
            Ok(NextLayers { stack, former: *former, next: NextTls { tls, files, config } })
        };
        let of_admin = |watched: &Watched| {
            let (tls, files) = (watched.tls.clone(), Files::of(&watched.tls));
            let config = watched.prepare(&tls, &files)?;
            Ok::<_, io::Error>(NextTls { tls, files, config })
        };
        let layers = listeners.iter().zip(former).map(next).collect::<io::Result<_>>()?;
        Ok(NextCertificates { layers, admin: self.admin.as_ref().map(of_admin).transpose()? })
    }

    /// Uses the files that were read.
    pub(crate) fn use_next(&mut self, next: NextCertificates) {
        let mut before = std::mem::take(&mut self.listeners);
        for NextLayers { stack, former, next } in next.layers {
            let before = former.and_then(|place| before[place].take());
            let watched = stack.tls.clone().map(|current| match before {
                Some(mut watched) => {
                    watched.use_next(next, &self.figures);
                    watched
                }
                None => Watched::new(next.tls, next.files, current),
            });
            self.listeners.push(watched);
        }
        if let (Some(watched), Some(next)) = (&mut self.admin, next.admin) {
            watched.use_next(next, &self.figures);
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
        self.admin.is_none() && self.listeners.iter().all(Option::is_none)
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.figures) as Arc<dyn Instruments>
    }

    /// Looks at the files once. Those that have changed before the last look, and not since, are read.
    pub(crate) fn look(&mut self) {
        for watched in self.listeners.iter_mut().chain([&mut self.admin]).flatten() {
            let stamps = stamps(&watched.tls);
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
        let all = self.listeners.iter().chain([&self.admin]).flatten().flat_map(|watched| &watched.expiries);
        self.in_use.replace(all.map(|expiry| expiry.certificate.clone()).collect());
        let all = self.listeners.iter_mut().chain([&mut self.admin]).flatten();
        for expiry in all.flat_map(|watched| &mut watched.expiries) {
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
    /// Files that are in use from now on.
    fn new(tls: TlsFiles, files: Files, current: Arc<CurrentTls>) -> Self {
        let (expiries, is_pending) = (expiries(&tls), false);
        let Files { stamps: seen, contents } = files;
        Self { tls, current, contents, seen, is_pending, expiries }
    }

    /// Reads files. `None` if they have no TLS.
    fn read(tls: TlsFiles) -> io::Result<Option<Self>> {
        let files = Files::of(&tls);
        let config = stack::tls(&tls)?;
        Ok(config.map(|config| Self::new(tls, files, Arc::new(CurrentTls::new(config)))))
    }

    /// Reads the files of a place that has changed, or whose files may have. Returns nothing if all is as before.
    fn prepare(&self, tls: &TlsFiles, files: &Files) -> io::Result<Option<Arc<ServerConfig>>> {
        let is_same = self.tls.is_same(tls);
        if is_same && files.contents == self.contents {
            return Ok(None);
        }
        if stack::awaits_certificate(tls) {
            if is_same {
                return Ok(None);
            }
            // The earlier certificate is better than none. The other rules are in force at once.
            return stack::tls_with_earlier(tls, &self.current.config());
        }
        match stack::tls(tls) {
            Err(error) if is_same && error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(%error, "the certificates stay as they were read at the start");
                Ok(None)
            }
            read => read,
        }
    }

    /// Uses files that were read.
    fn use_next(&mut self, next: NextTls, figures: &Figures) {
        let NextTls { tls, files, config } = next;
        self.tls = tls;
        (self.seen, self.is_pending) = (files.stamps, false);
        let listener = &self.tls.place;
        let Some(config) = config else {
            return tracing::info!(%listener, "the certificates are as before");
        };
        self.current.replace(config);
        self.contents = files.contents;
        self.expiries = expiries(&self.tls);
        figures.read.fetch_add(1, Relaxed);
        tracing::info!(%listener, "new certificates are in use");
    }

    /// Reads the files again, and uses them if they fit together. Otherwise everything stays as it is.
    fn read_again(&mut self, figures: &Figures) {
        let (tls, files) = (self.tls.clone(), Files::of(&self.tls));
        match self.prepare(&tls, &files) {
            Ok(config) => self.use_next(NextTls { tls, files, config }, figures),
            Err(error) => {
                let listener = &self.tls.place;
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

    fn listener(directory: &Path, rules: &str) -> (Listener, Admin) {
        let text = format!(
            "data_dir = {directory:?}\n[acme]\ndomains = [\"a.example\"]\nterms_of_service_agreed = true\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls_acme = true\n{rules}"
        );
        let config = Config::parse(&Sources::of("a.toml", &text), &Flags::default(), &Machine::detect());
        let mut config = config.unwrap_or_else(|report| panic!("{}", report.render(false)));
        (config.listeners.remove(0), config.admin)
    }

    /// Another authority is named, and the listener asks for certificates of clients from now on: that does not wait for the
    /// authority.
    #[test]
    fn stricter_rules_are_in_force_while_a_certificate_is_awaited() {
        let directory = std::env::temp_dir().join(format!("pondhawk-awaited-{}", std::process::id()));
        let (before, admin) = listener(&directory, "");
        let (file, ca) = (before.tls_certificate[0].clone(), directory.join("ca.pem"));
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a temporary directory");
        std::fs::write(&file, made.signing_key.serialize_pem() + &made.cert.pem()).expect("it is ours");
        std::fs::write(&ca, made.cert.pem()).expect("it is ours");
        let opened = Certificates::open(std::slice::from_ref(&before), &admin);
        let (mut certificates, stacks) = opened.expect("files");
        let current = stacks[0].tls.clone().expect("TLS");
        let earlier = current.config();
        std::fs::remove_file(&file).expect("it is ours");
        let (after, _) = listener(
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
