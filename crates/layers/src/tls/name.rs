//! The user name in a client's certificate.

use std::fmt::Write as _;

use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::Oid;
use x509_parser::oid_registry as oids;

use base::CertificateName;

/// The common name in a certificate in DER. `None` if there is not exactly one, or it is empty or has a NUL.
#[must_use]
pub fn common_name(der: &[u8]) -> Option<String> {
    of(der, CertificateName::CommonName)
}

/// The user name in a certificate in DER. `None` if there is not exactly one, or it has a character that no name has.
pub(crate) fn of(der: &[u8], name: CertificateName) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let found = match name {
        CertificateName::CommonName => only_common_name(&certificate),
        CertificateName::Subject => subject(&certificate),
    };
    // A NUL would end the name for other programs, and a user of that shorter name may exist.
    found.filter(|name| !name.is_empty() && !name.contains('\0'))
}

fn only_common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let only = names.next()?;
    names.next().is_none().then(|| only.as_str().ok().map(str::to_owned))?
}

/// The subject in the form of RFC 2253, as OpenSSL writes it: the last name first.
fn subject(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut text = String::new();
    let names: Vec<_> = certificate.subject().iter_rdn().collect();
    for (number, set) in names.iter().rev().enumerate() {
        text.push_str(if number > 0 { "," } else { "" });
        for (number, attribute) in set.iter().enumerate() {
            text.push_str(if number > 0 { "+" } else { "" });
            let _ = write!(text, "{}=", attribute_type(attribute.attr_type()));
            escape(attribute.as_str().ok()?, &mut text);
        }
    }
    Some(text)
}

/// The short name of an attribute, or its number.
fn attribute_type(oid: &Oid<'_>) -> String {
    let known = [
        (oids::OID_X509_COMMON_NAME, "CN"),
        (oids::OID_X509_COUNTRY_NAME, "C"),
        (oids::OID_X509_STATE_OR_PROVINCE_NAME, "ST"),
        (oids::OID_X509_LOCALITY_NAME, "L"),
        (oids::OID_X509_ORGANIZATION_NAME, "O"),
        (oids::OID_X509_ORGANIZATIONAL_UNIT, "OU"),
        (oids::OID_X509_SERIALNUMBER, "serialNumber"),
        (oids::OID_PKCS9_EMAIL_ADDRESS, "emailAddress"),
        (oids::OID_DOMAIN_COMPONENT, "DC"),
    ];
    let short = known.iter().find(|(known, _)| known == oid).map(|(_, short)| (*short).to_owned());
    short.unwrap_or_else(|| oid.to_id_string())
}

/// Writes a value with the escapes of RFC 2253, section 2.4. Bytes that are not ASCII are written in hexadecimal.
fn escape(value: &str, text: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'#' if at == 0 => text.push_str("\\#"),
            b' ' if at == 0 || at == last => text.push_str("\\ "),
            // It stays for the check of the caller.
            0 => text.push('\0'),
            0x20..=0x7E => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_rfc_2253_says() {
        let rows = [
            ("ann", "ann"),
            ("a,b+c", "a\\,b\\+c"),
            ("#1", "\\#1"),
            (" a b ", "\\ a b\\ "),
            ("ä", "\\C3\\A4"),
            ("a\nb", "a\\0Ab"),
            ("a\0b", "a\0b"),
        ];
        for (value, expected) in rows {
            let mut text = String::new();
            escape(value, &mut text);
            assert_eq!(text, expected, "{value:?}");
        }
    }
}
