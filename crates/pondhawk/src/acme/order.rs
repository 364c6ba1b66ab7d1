//! An order: the steps from the names of a certificate to the certificate (RFC 8555 section 7.1).
//!
//! ```text
//!   account ──► order ──► answers stand ready ──► the authority asks ──► key and request ──► certificate
//! ```

use std::collections::HashMap;
use std::hash::DefaultHasher;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::Acme;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus,
};
use layers::{CurrentTls, Identity};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use wire::Shown;

use super::answers::Answers;
use super::client::{Bounds, Client, finish};
use super::schedule::Window;
use super::stored::{self, Held, Issued};
use crate::certificates::now_unix_secs;
use crate::roots;

/// Time between two looks at an order, unless the authority names another time.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time between two looks at an order.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a reason that the authority gives, in characters.
const REASON_CHARACTERS: usize = 300;
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
const PREFIX: &str = "urn:ietf:params:acme:error:";

/// The certificate that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) settings: Acme,
    /// The directory with the account.
    pub(super) directory: PathBuf,
    /// The file with the certificate.
    pub(super) file: PathBuf,
}

/// The places where questions of the authority are answered.
pub(super) struct Desk<'a> {
    pub(super) listeners: &'a [Arc<CurrentTls>],
    pub(super) over_http: &'a Answers,
    /// Waits. Returns whether the order goes on.
    pub(super) pause: &'a dyn Fn(Duration) -> bool,
}

/// Why there is no certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    /// The time that the authority asks us to wait.
    pub(super) retry_after: Option<Duration>,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, retry_after: None }
    }
}

/// Asks for a certificate, and stores it.
///
/// # Errors
/// There is none. Nothing that was stored earlier has changed, except for the account.
pub(super) fn obtain(wanted: &Wanted, desk: &Desk<'_>) -> Result<Issued, Failure> {
    let mut asking = Asking::begin(wanted)?;
    let issued = asking.obtain(desk);
    let bounds = asking.bounds;
    let issued = issued.map_err(|why| Failure { why, retry_after: bounds.retry_after() })?;
    issued.store(&wanted.file)?;
    Ok(issued)
}

/// Asks when the authority wants a certificate to be renewed. Returns also the time after which to ask again.
///
/// # Errors
/// The authority does not say.
pub(super) fn window(wanted: &Wanted, held: &Held) -> Result<(Window, Duration), String> {
    let id = CertificateIdentifier::try_from(&held.certificate)?;
    let Some(stored) = stored::Account::read(&wanted.directory, &wanted.settings.directory_url)? else {
        return Err("there is no account".to_owned());
    };
    let (client, _) = client(&wanted.settings)?;
    let account = ready(Account::builder_with_http(client).from_credentials(stored.credentials))?;
    let (info, again) = ready(account.renewal_info(&id))?;
    let window = info.suggested_window;
    let (from_unix_secs, until_unix_secs) = (window.start.unix_timestamp(), window.end.unix_timestamp());
    Ok((Window { from_unix_secs, until_unix_secs }, again))
}

fn client(settings: &Acme) -> Result<(Box<Client>, Arc<Bounds>), String> {
    let roots = roots::read(settings.ca_file.as_deref(), &mut DefaultHasher::new());
    Client::new(&settings.directory_url, roots.map_err(|error| error.to_string())?)
}

/// Finishes a request. The text of an error is bounded, and has nothing that a terminal obeys.
fn ready<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    finish(request)?.map_err(|error| explain(&error))
}

fn explain(error: &Error) -> String {
    let text = match error {
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            let kind = kind.strip_prefix(PREFIX).unwrap_or(kind);
            let detail = problem.detail.as_deref().unwrap_or("it gives no reason");
            let parts = problem.subproblems.iter().filter_map(|part| part.detail.as_deref());
            let all = parts.fold(detail.to_owned(), |all, part| format!("{all}; {part}"));
            format!("the authority refuses: {all} ({kind})")
        }
        error => error.to_string(),
    };
    shown(&text)
}

/// A text from elsewhere: in one line, and not too long.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(REASON_CHARACTERS).collect();
    Shown(&short).to_string()
}

/// The requests for one certificate.
struct Asking<'a> {
    wanted: &'a Wanted,
    account: Account,
    bounds: Arc<Bounds>,
}

impl<'a> Asking<'a> {
    /// Logs in to the authority, with an account that is made if there is none.
    fn begin(wanted: &'a Wanted) -> Result<Self, Failure> {
        let Acme { directory_url, contact, .. } = &wanted.settings;
        let (client, bounds) = client(&wanted.settings)?;
        let Some(stored::Account { contact: known, credentials }) =
            stored::Account::read(&wanted.directory, directory_url)?
        else {
            let (account, bounds) = Self::register(wanted)?;
            return Ok(Self { wanted, account, bounds });
        };
        let failed = |why| Failure { why, retry_after: bounds.retry_after() };
        let account =
            ready(Account::builder_with_http(client).from_credentials(credentials)).map_err(failed)?;
        if known != *contact {
            let contacts = with_scheme(contact);
            let contacts: Vec<&str> = contacts.iter().map(String::as_str).collect();
            ready(account.update_contacts(&contacts)).map_err(failed)?;
            if let Some(stored) = stored::Account::read(&wanted.directory, directory_url)? {
                stored::Account { contact: contact.clone(), ..stored }.store(&wanted.directory)?;
            }
        }
        Ok(Self { wanted, account, bounds })
    }

    fn register(wanted: &Wanted) -> Result<(Account, Arc<Bounds>), Failure> {
        let Acme { directory_url, contact, terms_of_service_agreed, .. } = &wanted.settings;
        let (client, bounds) = client(&wanted.settings)?;
        let contacts = with_scheme(contact);
        let new = NewAccount {
            contact: &contacts.iter().map(String::as_str).collect::<Vec<_>>(),
            terms_of_service_agreed: *terms_of_service_agreed,
            only_return_existing: false,
        };
        let made = Account::builder_with_http(client).create(&new, directory_url.clone(), None);
        let (account, credentials) =
            ready(made).map_err(|why| Failure { why, retry_after: bounds.retry_after() })?;
        let file = stored::Account { contact: contact.clone(), credentials }.store(&wanted.directory)?;
        tracing::info!(authority = directory_url, file = %file.display(), "an account of ACME was made");
        Ok((account, bounds))
    }

    fn obtain(&mut self, desk: &Desk<'_>) -> Result<Issued, String> {
        let mut order = self.order()?;
        let answering = self.answer(&mut order, desk)?;
        self.await_ready(&mut order, desk)?;
        drop(answering);
        self.finish(&mut order, desk)
    }

    /// Begins an order. An account that the authority does not know any more is replaced.
    fn order(&mut self) -> Result<Order, String> {
        let domains = &self.wanted.settings.domains;
        let names: Vec<Identifier> = domains.iter().cloned().map(Identifier::Dns).collect();
        let mut new = NewOrder::new(&names);
        if let Some(profile) = &self.wanted.settings.profile {
            new = new.profile(profile);
        }
        match finish(self.account.new_order(&new))? {
            Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                tracing::warn!(
                    "the authority does not know the account of ACME any more, and another one is made"
                );
                let made = Self::register(self.wanted).map_err(|failure| failure.why)?;
                (self.account, self.bounds) = made;
                ready(self.account.new_order(&new))
            }
            order => order.map_err(|error| explain(&error)),
        }
    }

    /// Gives answers to all questions of the authority, and then lets it ask.
    fn answer<'d>(&self, order: &mut Order, desk: &'d Desk<'_>) -> Result<Answering<'d>, String> {
        let is_over_http = self.wanted.settings.http_address.is_some();
        let kind = if is_over_http { ChallengeType::Http01 } else { ChallengeType::TlsAlpn01 };
        let (mut over_http, mut over_tls) = (HashMap::new(), Vec::new());
        let mut questions = order.authorizations();
        while let Some(question) = finish(questions.next())? {
            let mut question = question.map_err(|error| explain(&error))?;
            if question.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = question.identifier().to_string();
            if !self.wanted.settings.domains.contains(&name) {
                return Err(format!("the authority asks about {}, which is no name of ours", shown(&name)));
            }
            let none = || format!("the authority does not check {name} in the way of this broker ({kind:?})");
            let challenge = question.challenge(kind.clone()).ok_or_else(none)?;
            let answer = challenge.key_authorization();
            if is_over_http {
                over_http.insert(challenge.token.clone(), answer.as_str().to_owned());
            } else {
                over_tls.push((name.clone(), certificate_with(&name, answer.digest().as_ref())?));
            }
        }
        let is_any = !(over_http.is_empty() && over_tls.is_empty());
        let answering = Answering::begin(desk, is_over_http.then_some(over_http), over_tls)?;
        if is_any {
            let port = if is_over_http { 80 } else { 443 };
            let names = self.wanted.settings.domains.join(", ");
            tracing::info!(%names, port, "the authority checks that the names lead to this broker");
        }
        let mut questions = order.authorizations();
        while let Some(question) = finish(questions.next())? {
            let mut question = question.map_err(|error| explain(&error))?;
            if question.status != AuthorizationStatus::Valid
                && let Some(mut challenge) = question.challenge(kind.clone())
            {
                ready(challenge.set_ready())?;
            }
        }
        Ok(answering)
    }

    fn await_ready(&self, order: &mut Order, desk: &Desk<'_>) -> Result<(), String> {
        loop {
            match ready(order.refresh())?.status {
                OrderStatus::Pending => self.pause(desk)?,
                OrderStatus::Invalid => return Err(self.reason(order)),
                OrderStatus::Ready | OrderStatus::Processing | OrderStatus::Valid => return Ok(()),
            }
        }
    }

    /// The reason why an order has failed.
    fn reason(&self, order: &mut Order) -> String {
        let mut questions = order.authorizations();
        while let Ok(Some(Ok(mut question))) = finish(questions.next()) {
            if ready(question.refresh()).is_err() {
                continue;
            }
            let name = question.identifier().to_string();
            if let Some(problem) = question.challenges.iter().find_map(|challenge| challenge.error.clone()) {
                let port = if self.wanted.settings.http_address.is_some() { 80 } else { 443 };
                let why = explain(&Error::Api(problem));
                return format!(
                    "{}: {why}; it must reach this broker at port {port} of the name",
                    shown(&name)
                );
            }
        }
        let problem = order.state().error.clone();
        problem.map_or_else(
            || "the authority has refused the order".to_owned(),
            |problem| explain(&Error::Api(problem)),
        )
    }

    /// Makes a key, and has the authority sign it.
    fn finish(&self, order: &mut Order, desk: &Desk<'_>) -> Result<Issued, String> {
        let domains = &self.wanted.settings.domains;
        let of_ours = |error: rcgen::Error| format!("the request cannot be made: {error}");
        let key = KeyPair::generate().map_err(of_ours)?;
        let mut params = CertificateParams::new(domains.clone()).map_err(of_ours)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(of_ours)?;
        ready(order.finalize_csr(request.der()))?;
        loop {
            match order.state().status {
                OrderStatus::Valid => break,
                OrderStatus::Invalid => return Err(self.reason(order)),
                _ => {
                    self.pause(desk)?;
                    ready(order.refresh())?;
                }
            }
        }
        let chain = ready(order.certificate())?.ok_or("the authority sends no certificate")?;
        let issued = Issued::new(&chain, &key, domains, now_unix_secs());
        issued.map_err(|why| format!("the answer of the authority cannot be used: {why}"))
    }

    /// Waits before the next look at an order.
    fn pause(&self, desk: &Desk<'_>) -> Result<(), String> {
        if self.bounds.is_late() {
            return Err("the authority has not finished the order in time".to_owned());
        }
        let time = self.bounds.retry_after().unwrap_or(LOOK).clamp(LOOK, LOOK_MAX);
        if (desk.pause)(time) { Ok(()) } else { Err("the order is given up".to_owned()) }
    }
}

fn with_scheme(contact: &[String]) -> Vec<String> {
    contact.iter().map(|address| format!("mailto:{address}")).collect()
}

/// A certificate that answers a question about a name (RFC 8737 section 3).
fn certificate_with(name: &str, digest: &[u8]) -> Result<Identity, String> {
    let failed = |error: rcgen::Error| format!("the answer about {name} cannot be made: {error}");
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?;
    Ok(Identity { chain: vec![certificate.into()], key })
}

/// Answers that are given until this is dropped.
struct Answering<'a>(&'a Desk<'a>);

impl<'a> Answering<'a> {
    fn begin(
        desk: &'a Desk<'_>,
        over_http: Option<HashMap<String, String>>,
        over_tls: Vec<(String, Identity)>,
    ) -> Result<Self, String> {
        let config = (!over_tls.is_empty()).then(|| layers::answers(over_tls)).transpose();
        let config = config.map_err(|error| error.to_string())?;
        desk.over_http.give(over_http);
        desk.listeners.iter().for_each(|listener| listener.answer(config.clone()));
        Ok(Self(desk))
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.over_http.give(None);
        self.0.listeners.iter().for_each(|listener| listener.answer(None));
    }
}
