//! Channel binding of a connection: keying material that both ends export, with the type `tls-exporter` (RFC 9266).
//!
//! rustls exports keying material of buffered connections only. The key log of rustls has the secret from which the material
//! follows (RFC 8446, section 7.5). The secret stays in memory of its thread until the handshake step that has brought it is over.
//!
//! TLS 1.3 only: a connection of TLS 1.2 has a binding of its own only with the extended master secret (RFC 7627), and rustls does
//! not say whether the client has asked for that.

use std::cell::{Cell, RefCell};

use rustls::crypto::tls13::OkmBlock;
use rustls::{KeyLog, SupportedCipherSuite};

/// Bytes of a channel binding.
const BYTES: usize = 32;
/// The name of the secret in a key log.
const SECRET: &str = "EXPORTER_SECRET";

thread_local! {
    static IS_WANTED: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Option<OkmBlock>> = const { RefCell::new(None) };
}

/// A key log that keeps the secret of the handshake step that is under way, and nothing else.
#[derive(Debug)]
pub(super) struct Exporter;

impl KeyLog for Exporter {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            FOUND.set(Some(OkmBlock::new(secret)));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == SECRET && IS_WANTED.get()
    }
}

/// Makes a step of a handshake. Returns also the secret, if this step has brought it.
pub(super) fn watch<T>(step: impl FnOnce() -> T) -> (T, Option<OkmBlock>) {
    /// Leaves no secret on the thread, however the step ends.
    struct Watch;
    impl Drop for Watch {
        fn drop(&mut self) {
            IS_WANTED.set(false);
            FOUND.take();
        }
    }
    let _watch = Watch;
    IS_WANTED.set(true);
    let outcome = step();
    (outcome, FOUND.take())
}

/// The channel binding that follows from a secret.
pub(super) fn binding(secret: &OkmBlock, suite: SupportedCipherSuite) -> Option<[u8; BYTES]> {
    let suite = suite.tls13()?;
    let nothing = suite.common.hash_provider.hash(&[]);
    let expand = |secret: &OkmBlock, label: &[u8], output: &mut [u8]| {
        let name: [&[u8]; 2] = [b"tls13 ", label];
        let lengths = [output.len(), name.concat().len(), nothing.as_ref().len()];
        let [bytes, of_name, of_context] = lengths.map(|length| u8::try_from(length).unwrap_or(u8::MAX));
        let info: [&[u8]; 6] = [&[0, bytes], &[of_name], name[0], name[1], &[of_context], nothing.as_ref()];
        suite.hkdf_provider.expander_for_okm(secret).expand_slice(&info, output).ok()
    };
    let mut derived = [0; OkmBlock::MAX_LEN];
    let derived = derived.get_mut(..nothing.as_ref().len())?;
    expand(secret, super::CHANNEL_BINDING, derived)?;
    let mut output = [0; BYTES];
    expand(&OkmBlock::new(derived), b"exporter", &mut output)?;
    Some(output)
}
