//! A directory with everything that configurations name, and brokers that read it.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pondhawk_tests::{free_ports, pondhawk, until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

use crate::case::{Case, Door};
use crate::peer;

/// The passwords of ann (`secret`) and bob (`builder`), as mosquitto_passwd writes them.
const USERS: &str = "\
ann:$7$101$n1w9+WIQuNkSajkf$Zsu/grKRcKQVGyosX7Zq+KFvVVhRCWevGiClNFViiijKjZIfNMXi+bTSq1zGfFrhlvrVCOtxBZl8CbSWl21f8A==
bob:$7$101$R2KkoVnBv1khF4Zh$7bh1M5LqFDWITDeebWfS/vEf9bMUAPaU0hfgqZktIhgLQocI2fXT0vTXPRoAaCZp7z1dkZh3NEddMyCZF9AIJw==
";

/// Rules for anonymous clients, for ann, and for everybody by name and identifier.
const RULES: &str = "\
# Anonymous clients
topic read room/#
topic deny room/secret

user ann
topic readwrite room/#
topic write other/thing

pattern readwrite user/%u/#
pattern write client/%c/x
";

const MOSQUITTO: &str = "/usr/sbin/mosquitto";

/// Mosquitto's plugin for dynamic security, in the directory of this kind of machine. Pondhawk looks at the name alone.
fn plugin() -> String {
    let folders = fs::read_dir("/usr/lib").expect("Linux has libraries");
    let paths = folders.flatten().map(|folder| folder.path().join("mosquitto_dynamic_security.so"));
    let found = paths.filter(|path| path.exists()).map(|path| path.display().to_string()).next();
    found.unwrap_or_else(|| "/usr/lib/mosquitto_dynamic_security.so".to_owned())
}

/// One of the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Mosquitto,
    Pondhawk,
}

/// The directory with all files.
pub(crate) struct Scene(TempDir);

/// A broker that is killed on drop.
struct Running(Child, PathBuf);

impl Running {
    fn said(&self) -> String {
        fs::read_to_string(&self.1).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    /// Writes certificates, users and rules, so that every user of the machine can read them.
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).expect("it is ours");
        let scene = Self(directory);
        scene.write("users", USERS);
        scene.write("rules", RULES);
        scene.certify();
        fs::create_dir(scene.path().join("conf.d")).expect("it is ours");
        fs::create_dir(scene.path().join("data")).expect("it is ours");
        fs::set_permissions(scene.path().join("data"), Permissions::from_mode(0o777)).expect("it is ours");
        scene
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let folder = self.path().join(name).parent().expect("a file is in a folder").to_owned();
        fs::create_dir_all(folder).expect("it is ours");
        fs::write(self.path().join(name), text).expect("a temporary file can be written");
        let mode = Permissions::from_mode(0o644);
        fs::set_permissions(self.path().join(name), mode).expect("a temporary file is ours");
    }

    /// An authority with a server and a client called ann, and a client of another authority.
    fn certify(&self) {
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().expect("a key");
            CertifiedIssuer::self_signed(params, key).expect("a certificate")
        };
        let (ours, foreign) = (authority("the pond"), authority("another pond"));
        self.write("ca.pem", &ours.pem());
        for (name, host, issuer) in
            [("server", "localhost", &ours), ("ann", "ann", &ours), ("foreign", "ann", &foreign)]
        {
            let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, host);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, issuer).expect("a certificate");
            self.write(&format!("{name}.pem"), &certificate.pem());
            self.write(&format!("{name}.key"), &key.serialize_pem());
        }
    }

    /// Writes the files of a case with new ports, and starts a broker with it.
    fn start(&self, server: Server, case: &Case) -> (Running, [u16; 4]) {
        let (ports, plugin) = (free_ports(), plugin());
        let filled = |text: &str| {
            let mut text = text.replace("DIR", &self.path().display().to_string()).replace("PLUGIN", &plugin);
            for (port, number) in ports.iter().zip(1..) {
                text = text.replace(&format!("PORT{number}"), &port.to_string());
            }
            text
        };
        case.files.iter().for_each(|(name, text)| self.write(name, &filled(text)));
        self.write("mosquitto.conf", &filled(&case.text));
        let mut command = match server {
            Server::Mosquitto => Command::new(MOSQUITTO),
            Server::Pondhawk => Command::new(pondhawk()),
        };
        command.arg("-c").arg(self.path().join("mosquitto.conf")).current_dir(self.path());
        if case.has_port {
            command.args(["-p", &ports[0].to_string()]);
        }
        let log = self.path().join("log");
        let file = fs::File::create(&log).expect("a temporary file can be written");
        let other = file.try_clone().expect("a file can be shared");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(other).spawn();
        (Running(child.unwrap_or_else(|error| panic!("{server:?} cannot be started: {error}")), log), ports)
    }

    /// The words of a broker that does not start with this case.
    pub(crate) fn refusal(&self, server: Server, case: &Case) -> Result<String, String> {
        let (mut running, ports) = self.start(server, case);
        let doors = doors(case, ports);
        let ended = until("the broker ends or listens", || match running.0.try_wait() {
            Ok(Some(status)) => Some(!status.success()),
            _ => self.is_open(&doors).then_some(false),
        });
        if ended { Ok(running.said()) } else { Err(format!("{server:?} starts\n{}", running.said())) }
    }

    /// Everything that the clients see of a broker with this case.
    pub(crate) fn transcript(&self, server: Server, case: &Case) -> Result<Vec<String>, String> {
        let (mut running, ports) = self.start(server, case);
        let doors = doors(case, ports);
        let has_ended = until("the broker listens", || match running.0.try_wait() {
            Ok(None) => self.is_open(&doors).then_some(false),
            _ => Some(true),
        });
        if has_ended {
            return Err(format!("{server:?} does not start\n{}", running.said()));
        }
        Ok(peer::transcript(self.path(), &doors))
    }

    fn is_open(&self, doors: &[(Door, u16)]) -> bool {
        doors.iter().all(|(door, port)| match door.port {
            0 => std::os::unix::net::UnixStream::connect(self.path().join("socket")).is_ok(),
            _ => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        })
    }
}

fn doors(case: &Case, ports: [u16; 4]) -> Vec<(Door, u16)> {
    case.doors.iter().map(|door| (*door, ports[door.port.saturating_sub(1)])).collect()
}
