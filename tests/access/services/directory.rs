//! OpenLDAP's server, with a few entries.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pondhawk_tests::{Program, free_port, install, until};
use tempfile::TempDir;

/// Entries: three users, of which two have the same `mail`, and the one as which the broker searches.
const ENTRIES: &str = "\
dn: dc=pond
objectClass: dcObject
objectClass: organization
o: Pond
dc: pond

dn: ou=people,dc=pond
objectClass: organizationalUnit
ou: people

dn: cn=broker,dc=pond
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: broker
userPassword: lookup

dn: uid=frog,ou=people,dc=pond
objectClass: inetOrgPerson
uid: frog
cn: frog
sn: frog
mail: frog@pond.example
userPassword: croak

dn: uid=toad\\2C the second,ou=people,dc=pond
objectClass: inetOrgPerson
uid: toad, the second
cn: toad
sn: toad
mail: twins@pond.example
userPassword: hop

dn: uid=newt,ou=people,dc=pond
objectClass: inetOrgPerson
uid: newt
cn: newt
sn: newt
mail: twins@pond.example
userPassword: swim
";

/// A directory that runs until it is dropped.
pub(super) struct Directory {
    pub(super) url: String,
    folder: TempDir,
    server: Program,
}

impl Directory {
    /// Fills and starts a directory on a free port. With TLS, the files of the certificate are named.
    pub(super) fn start(tls: &str) -> Self {
        let folder = TempDir::new().expect("there is a place for temporary files");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("db")).expect("a new directory");
        // A program of the same name elsewhere may be confined to the system's own directory.
        install(Path::new("/usr/sbin/slapd"), &path("slapd"));
        symlink("slapd", path("slapadd")).expect("a new name");
        let schemas = ["core", "cosine", "inetorgperson"]
            .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"));
        let settings = format!(
            "{}modulepath /usr/lib/ldap\nmoduleload back_mdb\n{tls}database mdb\nsuffix \"dc=pond\"\n\
             rootdn \"cn=admin,dc=pond\"\ndirectory {:?}\n\
             access to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn=\"cn=broker,dc=pond\" read by * none\n",
            schemas.concat(),
            path("db"),
        );
        fs::write(path("slapd.conf"), settings).expect("a new file");
        fs::write(path("entries.ldif"), ENTRIES).expect("a new file");
        let filled = Command::new(path("slapadd"))
            .arg("-f")
            .arg(path("slapd.conf"))
            .arg("-l")
            .arg(path("entries.ldif"))
            .output()
            .expect("slapadd can be run");
        assert!(filled.status.success(), "{filled:?}");
        let port = free_port();
        let server = Self::serve(&folder, port);
        Self { url: format!("ldap://127.0.0.1:{port}"), folder, server }
    }

    fn serve(folder: &TempDir, port: u16) -> Program {
        let mut slapd = Command::new(folder.path().join("slapd"));
        slapd
            .arg("-h")
            .arg(format!("ldap://127.0.0.1:{port}"))
            .arg("-f")
            .arg(folder.path().join("slapd.conf"));
        let server = Program::start({
            slapd.args(["-d", "0"]);
            slapd
        });
        until("the directory listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }

    /// Ends the directory, without a goodbye.
    pub(super) fn kill(self) -> Stopped {
        let Self { url, folder, server } = self;
        server.kill();
        Stopped { url, folder }
    }
}

/// A directory that has ended.
pub(super) struct Stopped {
    url: String,
    folder: TempDir,
}

impl Stopped {
    /// Starts the directory again, on the same port.
    pub(super) fn start(self) -> Directory {
        let Self { url, folder } = self;
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let server = Directory::serve(&folder, port);
        Directory { url, folder, server }
    }
}
