//! Flags about TLS, including those that are refused.

use super::{ALL, Flag, Takes, argument};
use crate::failure::Failure;

pub(super) const TLS: &[Flag] = &[
    Flag {
        names: &["--cafile"],
        tools: ALL,
        takes: Takes::Path(
            argument("FILE", "--cafile argument given but no file specified"),
            |settings, path| {
                settings.tls.ca_file = Some(path.into());
                Ok(())
            },
        ),
        help: "Trust the certificate authorities in this file (PEM)",
    },
    Flag {
        names: &["--capath"],
        tools: ALL,
        takes: Takes::Path(
            argument("DIR", "--capath argument given but no directory specified"),
            |settings, path| {
                settings.tls.ca_directory = Some(path.into());
                Ok(())
            },
        ),
        help: "Trust the certificate authorities in the files of this directory",
    },
    Flag {
        names: &["--tls-use-os-certs"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.tls.uses_system_roots = true;
            Ok(())
        }),
        help: "Trust the authorities of this machine (default with mqtts:// and port 8883)",
    },
    Flag {
        names: &["--cert"],
        tools: ALL,
        takes: Takes::Path(
            argument("FILE", "--cert argument given but no file specified"),
            |settings, path| {
                settings.tls.certificate = Some(path.into());
                Ok(())
            },
        ),
        help: "Certificate of the client (PEM)",
    },
    Flag {
        names: &["--key"],
        tools: ALL,
        takes: Takes::Path(
            argument("FILE", "--key argument given but no file specified"),
            |settings, path| {
                settings.tls.key = Some(path.into());
                Ok(())
            },
        ),
        help: "Private key of the certificate (PEM)",
    },
    Flag {
        names: &["--keyform"],
        tools: ALL,
        takes: Takes::Text(
            argument("FORM", "--keyform argument given but no keyform specified"),
            |settings, text| {
                if text == "engine" {
                    return Err(refused("--keyform engine", ENGINES));
                }
                settings.tls.key_form = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Format of the key: pem",
    },
    Flag {
        names: &["--tls-version"],
        tools: ALL,
        takes: Takes::Text(
            argument("VERSION", "--tls-version argument given but no version specified"),
            |settings, text| {
                if text == "tlsv1.1" {
                    return Err(refused("--tls-version tlsv1.1", OUTDATED));
                }
                settings.tls.version = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Minimum version of TLS: tlsv1.2 or tlsv1.3 [tlsv1.2]",
    },
    Flag {
        names: &["--ciphers"],
        tools: ALL,
        takes: Takes::Text(
            argument("LIST", "--ciphers argument given but no ciphers specified"),
            |settings, text| {
                settings.tls.ciphers = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Allow these ciphers only",
    },
    Flag {
        names: &["--tls-alpn"],
        tools: ALL,
        takes: Takes::Text(
            argument("PROTOCOL", "--tls-alpn argument given but no protocol specified"),
            |settings, text| {
                settings.tls.alpn = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Protocol to negotiate (ALPN)",
    },
    Flag {
        names: &["--insecure"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.tls.is_insecure = true;
            Ok(())
        }),
        help: "Do not check the host name of the certificate. Anybody can then be\nthe broker: for tests only",
    },
];

/// Flags of Mosquitto's clients that are refused. They are listed so that the error can name them.
pub(super) const REFUSED: &[Flag] = &[
    Flag {
        names: &["--psk"],
        tools: ALL,
        takes: Takes::Text(argument("KEY", "--psk argument given but no key specified"), |_, _| {
            Err(refused("--psk", SHARED_KEYS))
        }),
        help: "A key that both ends share",
    },
    Flag {
        names: &["--psk-identity"],
        tools: ALL,
        takes: Takes::Text(
            argument("NAME", "--psk-identity argument given but no identity specified"),
            |_, _| Err(refused("--psk-identity", SHARED_KEYS)),
        ),
        help: "The name of the key's owner",
    },
    Flag {
        names: &["--tls-engine"],
        tools: ALL,
        takes: Takes::Text(
            argument("NAME", "--tls-engine argument given but no engine_id specified"),
            |_, _| Err(refused("--tls-engine", ENGINES)),
        ),
        help: "An engine of OpenSSL",
    },
    Flag {
        names: &["--tls-engine-kpass-sha1"],
        tools: ALL,
        takes: Takes::Text(
            argument("HASH", "--tls-engine-kpass-sha1 argument given but no kpass sha1 specified"),
            |_, _| Err(refused("--tls-engine-kpass-sha1", ENGINES)),
        ),
        help: "The password of a key in such an engine",
    },
];

const OUTDATED: &str = "it is no longer safe (RFC 8996); use tlsv1.2 or tlsv1.3";
const SHARED_KEYS: &str = "keys that both ends share (TLS-PSK) are not supported; use certificates";
const ENGINES: &str =
    "engines are a matter of OpenSSL, which this program does not use; use a key in a file (--key)";

fn refused(flag: &str, why: &str) -> Failure {
    Failure::usage(format!("Error: {flag} is refused: {why}."))
}
