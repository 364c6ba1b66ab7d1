//! Flags of `probe`, `tap` and `replay` for TLS: whom to trust, and the client's certificate.

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
    /// Adds the values of environment and profile for flags that were not given.
    pub(crate) fn or(self, tls: &crate::settings::Tls) -> Self {
        let Self { cafile, capath, cert, key, insecure } = self;
        let (cert, key) = match cert {
            Some(_) => (cert, key),
            None => (tls.certificate.clone(), tls.key.clone()),
        };
        // A flag about trust replaces the others.
        let is_given = cafile.is_some() || capath.is_some();
        let (ca_file, ca_directory) = (tls.ca_file.clone(), tls.ca_directory.clone());
        Self {
            cafile: cafile.or(ca_file.filter(|_| !is_given)),
            capath: capath.or(ca_directory.filter(|_| !is_given)),
            cert,
            key,
            insecure: insecure || tls.is_insecure,
        }
    }

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
