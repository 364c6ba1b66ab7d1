//! Flags of `probe` and `tap` for TLS: whom to trust, and the client's certificate.

use std::path::PathBuf;

use clap::Args;
use client::{Tls, TlsOptions};

/// Flags for TLS, with the names that they have in `pub` and `sub`. Each of them makes the connection encrypted.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Trust {
    /// Trust the certificate authorities in this PEM file, instead of those of this machine.
    #[arg(long, value_name = "FILE")]
    cafile: Option<PathBuf>,

    /// Trust the certificate authorities in this directory.
    #[arg(long, value_name = "DIR")]
    capath: Option<PathBuf>,

    /// Certificate of this client, a PEM file.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Private key of the certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Do not check that the certificate is for this host name. Only for tests.
    #[arg(long)]
    insecure: bool,
}

impl Trust {
    /// The configuration of TLS; `None` for a connection without TLS.
    pub(crate) fn tls(&self, has_tls: bool) -> Result<Option<Tls>, String> {
        let has_flags =
            self.cafile.is_some() || self.capath.is_some() || self.cert.is_some() || self.insecure;
        if !has_tls && !has_flags {
            return Ok(None);
        }
        let mut options = TlsOptions::new();
        if let Some(file) = &self.cafile {
            options = options.root_file(file);
        }
        if let Some(directory) = &self.capath {
            options = options.root_directory(directory);
        }
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key) {
            options = options.client_certificate_files(certificate, key);
        }
        if self.insecure {
            options = options.dangerously_accept_any_host_name();
        }
        options.build().map(Some).map_err(|error| error.to_string())
    }
}
