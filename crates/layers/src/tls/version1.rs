//! Client certificates of X.509 version 1.
//!
//! Devices in the field have certificates without extensions, as `openssl x509 -req` makes them. webpki reads version 3 only.
//! A certificate of version 1 is accepted here if one of the configured authorities has signed it itself. Signatures, dates
//! and revocation are checked with the algorithms and the rules of webpki. Everything else is webpki's.

use std::collections::HashSet;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::X509Version;
use x509_parser::revocation_list::CertificateRevocationList;

/// A verifier that also accepts version 1.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// For all other versions.
    webpki: Arc<dyn ClientCertVerifier>,
    /// With lists: refuses a client's certificate whose issuer has no list, or an expired one.
    strict: Option<Arc<dyn ClientCertVerifier>>,
    authorities: Vec<Authority>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// A verifier for these authorities and lists, which `webpki` knows too.
    pub(crate) fn new(
        webpki: Arc<dyn ClientCertVerifier>,
        authorities: &[CertificateDer<'_>],
        revoked: &[CertificateRevocationListDer<'_>],
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        let authority = |der| Authority::new(der, revoked, &algorithms);
        let authorities = authorities.iter().filter_map(authority).collect();
        Self { webpki, strict: None, authorities, algorithms }
    }

    /// Adds the verifier that every certificate has to satisfy besides, except those of version 1.
    pub(crate) fn with_strict(self, strict: Arc<dyn ClientCertVerifier>) -> Self {
        Self { strict: Some(strict), ..self }
    }

    fn verify(&self, certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let now_unix_secs = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = certificate.validity();
        if now_unix_secs < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet);
        }
        if now_unix_secs > validity.not_after.timestamp() {
            return Err(CertificateError::Expired);
        }
        let signed = Signed::of(certificate.as_raw()).ok_or(CertificateError::BadEncoding)?;
        // Both places name the algorithm, and only one of them is signed (RFC 5280, section 4.1.1.2).
        if certificate.signature_algorithm != certificate.tbs_certificate.signature {
            return Err(CertificateError::BadEncoding);
        }
        let mut outcome = Err(CertificateError::UnknownIssuer);
        for authority in &self.authorities {
            if authority.name != certificate.issuer().as_raw() {
                continue;
            }
            if signed.is_by(&authority.key, &self.algorithms) {
                return authority.check_revocation(&certificate.serial.to_bytes_be(), now_unix_secs);
            }
            outcome = Err(CertificateError::BadSignature);
        }
        outcome
    }
}

/// An authority that may sign any certificate.
#[derive(Debug)]
struct Authority {
    /// Its subject in DER.
    name: Vec<u8>,
    /// Its SubjectPublicKeyInfo in DER.
    key: Vec<u8>,
    revocation: Revocation,
}

/// The lists of one authority.
#[derive(Debug)]
enum Revocation {
    /// Nothing is checked, because no authority has a list.
    Off,
    /// Only other authorities have a list, or a list is malformed, or has the name of this authority and not its signature.
    Unknown,
    /// Each serial number that is revoked.
    Listed { revoked: HashSet<Vec<u8>>, until_unix_secs: i64 },
}

impl Authority {
    /// Reads a certificate. `None` if it is malformed, or limits the names in certificates: without extensions there is
    /// nothing to compare these limits with.
    fn new(
        der: &CertificateDer<'_>,
        lists: &[CertificateRevocationListDer<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        if !matches!(certificate.name_constraints(), Ok(None)) {
            return None;
        }
        let name = certificate.subject().as_raw().to_vec();
        let key = certificate.public_key().raw.to_vec();
        let revocation = match lists {
            [] => Revocation::Off,
            lists => Revocation::of(&name, &key, lists, algorithms).unwrap_or(Revocation::Unknown),
        };
        Some(Self { name, key, revocation })
    }

    /// As webpki does in its strict mode: a list whose signature is wrong, or that has expired, is no reason to accept.
    fn check_revocation(&self, serial: &[u8], now_unix_secs: i64) -> Result<(), CertificateError> {
        match &self.revocation {
            Revocation::Off => Ok(()),
            Revocation::Unknown => Err(CertificateError::UnknownRevocationStatus),
            Revocation::Listed { revoked, .. } if revoked.contains(serial) => Err(CertificateError::Revoked),
            Revocation::Listed { until_unix_secs, .. } if now_unix_secs >= *until_unix_secs => {
                Err(CertificateError::ExpiredRevocationList)
            }
            Revocation::Listed { .. } => Ok(()),
        }
    }
}

impl Revocation {
    /// Reads all lists of the authority with this name and key. The first of them to expire counts. `None` if there is no
    /// list, or one that cannot be used.
    fn of(
        name: &[u8],
        key: &[u8],
        lists: &[CertificateRevocationListDer<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Option<Self> {
        let (mut revoked, mut until) = (HashSet::new(), None);
        for list in lists {
            let (_, parsed) = CertificateRevocationList::from_der(list).ok()?;
            if parsed.issuer().as_raw() != name {
                continue;
            }
            Signed::of(list).filter(|signed| signed.is_by(key, algorithms))?;
            revoked.extend(parsed.iter_revoked_certificates().map(|revoked| revoked.serial().to_bytes_be()));
            let next_update = parsed.next_update()?.timestamp();
            until = Some(until.map_or(next_update, |earlier: i64| earlier.min(next_update)));
        }
        Some(Self::Listed { revoked, until_unix_secs: until? })
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.webpki.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.webpki.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match version_1(end_entity) {
            Some(certificate) => {
                self.verify(&certificate, now).map_err(Error::InvalidCertificate)?;
                Ok(ClientCertVerified::assertion())
            }
            None => {
                if let Some(strict) = &self.strict {
                    strict.verify_client_cert(end_entity, intermediates, now)?;
                }
                self.webpki.verify_client_cert(end_entity, intermediates, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(certificate) = version_1(certificate) else {
            return self.webpki.verify_tls12_signature(message, certificate, signature);
        };
        let mapping = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, algorithms) = mapping.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let (key_algorithm, key) =
            key_parts(certificate.public_key().raw).ok_or(CertificateError::BadEncoding)?;
        // TLS 1.2 does not say which curve belongs to a hash.
        let is_valid = algorithms.iter().any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == key_algorithm
                && algorithm.verify_signature(key, message, signature.signature()).is_ok()
        });
        if is_valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match version_1(certificate) {
            Some(certificate) => {
                let key = SubjectPublicKeyInfoDer::from(certificate.public_key().raw);
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            None => self.webpki.verify_tls13_signature(message, certificate, signature),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// The certificate, if it is one of version 1, and nothing else.
fn version_1<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    // Version 1 has neither extensions nor unique identifiers (RFC 5280, section 4.1).
    let is_plain = certificate.extensions().is_empty()
        && certificate.issuer_uid.is_none()
        && certificate.subject_uid.is_none();
    (rest.is_empty() && certificate.version == X509Version::V1 && is_plain).then_some(certificate)
}

/// A signed structure: a certificate, or a list of revoked ones.
struct Signed<'a> {
    message: &'a [u8],
    /// The contents of the AlgorithmIdentifier.
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    /// Takes the three parts of it. The signature does not cover the tags of the whole and of the two last parts, and the
    /// parser ignores a bit of each: they are compared with DER.
    fn of(der: &'a [u8]) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        const BIT_STRING: u8 = 0x03;
        let (rest, all) = Any::from_der(der).ok()?;
        let (after_message, _) = Any::from_der(all.data).ok()?;
        let message = all.data.get(..all.data.len() - after_message.len())?;
        let (after_algorithm, algorithm) = Any::from_der(after_message).ok()?;
        let signature = bits(after_algorithm)?;
        let tags = [der, after_message, after_algorithm].map(|part| part.first().copied());
        let is_der = tags == [SEQUENCE, SEQUENCE, BIT_STRING].map(Some);
        (rest.is_empty() && is_der).then_some(Self { message, algorithm: algorithm.data, signature })
    }

    /// Whether the owner of this key, a SubjectPublicKeyInfo, has signed it.
    fn is_by(&self, key: &[u8], algorithms: &WebPkiSupportedAlgorithms) -> bool {
        let Some((key_algorithm, key)) = key_parts(key) else { return false };
        algorithms.all.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == self.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
                && algorithm.verify_signature(key, self.message, self.signature).is_ok()
        })
    }
}

/// The contents of the AlgorithmIdentifier of a SubjectPublicKeyInfo, and its key.
fn key_parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, all) = Any::from_der(der).ok()?;
    let (key, algorithm) = Any::from_der(all.data).ok()?;
    Some((algorithm.data, bits(key)?))
}

/// The bytes of a BIT STRING of whole bytes with nothing behind it.
fn bits(der: &[u8]) -> Option<&[u8]> {
    let (rest, string) = Any::from_der(der).ok()?;
    match string.data.split_first()? {
        (0, bytes) if rest.is_empty() => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::server::WebPkiClientVerifier;

    use super::*;

    /// `openssl x509 -req` has made them on 24 November 2026, for ten years. `ca` and `other` have the same name. `other` has
    /// signed `forged`, and `forged.crl`. `ca.crl` names `toad`.
    macro_rules! pem {
        ($name:literal) => {
            include_bytes!(concat!("version1/", $name))
        };
    }
    const CA: &[u8] = pem!("ca.pem");
    const OTHER: &[u8] = pem!("other.pem");
    const FROG: &[u8] = pem!("frog.pem");
    const TOAD: &[u8] = pem!("toad.pem");
    const FORGED: &[u8] = pem!("forged.pem");
    const SHA1: &[u8] = pem!("sha1.pem");
    const LIST: &[u8] = pem!("ca.crl");
    const FORGED_LIST: &[u8] = pem!("forged.crl");

    const MADE_UNIX_SECS: u64 = 1_795_480_821;
    const DAY_SECS: u64 = 86_400;

    fn certificate(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).expect("a certificate")
    }

    fn verifier(authorities: &[&[u8]], lists: &[&[u8]]) -> Verifier {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let authorities: Vec<_> = authorities.iter().map(|pem| certificate(pem)).collect();
        let list = |pem: &&[u8]| CertificateRevocationListDer::from_pem_slice(pem).expect("a list");
        let lists: Vec<_> = lists.iter().map(list).collect();
        let mut roots = RootCertStore::empty();
        authorities.iter().for_each(|authority| roots.add(authority.clone()).expect("an authority"));
        let webpki = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(lists.iter().cloned())
            .allow_unknown_revocation_status();
        Verifier::new(webpki.build().expect("rules"), &authorities, &lists, algorithms)
    }

    fn verdict(
        verifier: &Verifier,
        der: &CertificateDer<'_>,
        unix_secs: u64,
    ) -> Result<(), CertificateError> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_secs));
        match verifier.verify_client_cert(der, &[], now) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    /// Authorities, lists, a certificate, and the verdict.
    type Row<'a> = (&'a [&'a [u8]], &'a [&'a [u8]], &'a [u8], Result<(), CertificateError>);

    #[test]
    fn version_1_is_accepted_from_a_trusted_authority_only() {
        let later = MADE_UNIX_SECS + DAY_SECS;
        let rows: [Row<'_>; 9] = [
            (&[CA], &[], FROG, Ok(())),
            (&[OTHER, CA], &[], FROG, Ok(())),
            (&[CA], &[LIST], FROG, Ok(())),
            (&[CA], &[], TOAD, Ok(())),
            (&[CA], &[LIST], TOAD, Err(CertificateError::Revoked)),
            // A list of somebody with the name of the authority.
            (&[CA], &[FORGED_LIST], FROG, Err(CertificateError::UnknownRevocationStatus)),
            (&[CA], &[], FORGED, Err(CertificateError::BadSignature)),
            (&[OTHER], &[], FROG, Err(CertificateError::BadSignature)),
            (&[CA], &[], SHA1, Err(CertificateError::BadSignature)),
        ];
        for (number, (authorities, lists, pem, expected)) in rows.into_iter().enumerate() {
            let found = verdict(&verifier(authorities, lists), &certificate(pem), later);
            assert_eq!(found, expected, "row {number}");
        }
    }

    #[test]
    fn dates_are_checked() {
        let verifier = verifier(&[CA], &[]);
        let frog = certificate(FROG);
        for (unix_secs, expected) in [
            (MADE_UNIX_SECS - DAY_SECS, Err(CertificateError::NotValidYet)),
            (MADE_UNIX_SECS + 3_649 * DAY_SECS, Ok(())),
            (MADE_UNIX_SECS + 3_651 * DAY_SECS, Err(CertificateError::Expired)),
        ] {
            assert_eq!(verdict(&verifier, &frog, unix_secs), expected, "{unix_secs}");
        }
    }

    /// The list names an update within a hundred years.
    #[test]
    fn an_expired_list_and_the_list_of_another_authority_are_no_reason_to_accept() {
        let centuries = 36_600 * DAY_SECS;
        let verifier = verifier(&[CA], &[LIST]);
        let revocation = &verifier.authorities[0].revocation;
        let Revocation::Listed { until_unix_secs, .. } = revocation else { panic!("{revocation:?}") };
        assert!((MADE_UNIX_SECS..MADE_UNIX_SECS + centuries).contains(&until_unix_secs.unsigned_abs()));
        for (serial, after_secs, expected) in
            [(&[1, 2][..], -1, Ok(())), (&[1, 2], 0, Err(CertificateError::ExpiredRevocationList))]
        {
            let found = verifier.authorities[0].check_revocation(serial, until_unix_secs + after_secs);
            assert_eq!(found, expected, "{after_secs}");
        }
        let list = CertificateRevocationListDer::from_pem_slice(LIST).expect("a list");
        let algorithms = ring::default_provider().signature_verification_algorithms;
        assert!(Revocation::of(b"another", &verifier.authorities[0].key, &[list], &algorithms).is_none());
    }

    /// Every byte counts: there is no place in a certificate where a bit can be changed, or the end cut off.
    #[test]
    fn a_changed_certificate_is_refused() {
        let verifier = verifier(&[CA], &[]);
        let frog = certificate(FROG);
        for place in 0..frog.len() {
            for bit in 0..8 {
                let mut bytes = frog.to_vec();
                bytes[place] ^= 1 << bit;
                let changed = CertificateDer::from(bytes);
                assert!(verdict(&verifier, &changed, MADE_UNIX_SECS + DAY_SECS).is_err(), "{place}, {bit}");
            }
            let cut = CertificateDer::from(frog[..place].to_vec());
            assert!(verdict(&verifier, &cut, MADE_UNIX_SECS + DAY_SECS).is_err(), "cut at {place}");
        }
    }
}
