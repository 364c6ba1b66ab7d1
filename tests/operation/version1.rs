//! Client certificates of X.509 version 1, which openssl makes, and mosquitto_pub shows.

use std::process::Command;

use pondhawk_tests::{Broker, Options};
use tempfile::TempDir;

#[test]
fn a_client_with_a_certificate_of_version_1_connects() {
    let place = TempDir::new().expect("a temporary directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let openssl = |words: &str| {
        let words = words.replace("DIR", &place.path().display().to_string());
        let output = Command::new("openssl").args(words.split(' ')).output().expect("openssl is there");
        assert!(output.status.success(), "{output:?}");
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout DIR/ca.key -out DIR/ca.pem -subj /CN=lake -days 9");
    let server = "-subj /CN=localhost -addext subjectAltName=DNS:localhost -days 9";
    openssl(&format!(
        "req -x509 -newkey rsa:2048 -nodes -keyout DIR/server.key -out DIR/server.pem {server}"
    ));
    // One key of each kind, as each is verified in another way.
    for (name, key) in [("rsa", "rsa:2048"), ("ec", "ec -pkeyopt ec_paramgen_curve:P-256")] {
        openssl(&format!(
            "req -new -newkey {key} -nodes -keyout DIR/{name}.key -out DIR/{name}.csr -subj /CN={name}"
        ));
        let signed = "-CA DIR/ca.pem -CAkey DIR/ca.key -set_serial 7 -days 9";
        openssl(&format!("x509 -req -in DIR/{name}.csr -out DIR/{name}.pem {signed}"));
    }
    let tls = format!("tls_certificate = {:?}\ntls_key = {:?}\n", path("server.pem"), path("server.key"));
    let asks = format!("tls_client_certificate = \"required\"\ntls_client_ca = {:?}\n", path("ca.pem"));
    let settings = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{tls}{asks}");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let publish = |certificate: &str, key: &str, version: &str| {
        let mut command = Command::new("mosquitto_pub");
        command.args(["-h", "localhost", "-p", &broker.address().port().to_string(), "-q", "1"]);
        command.args(["--cafile", &path("server.pem"), "--tls-version", version, "-t", "pond", "-m", "hey"]);
        command.args(["--cert", &path(certificate), "--key", &path(key)]);
        command.output().expect("mosquitto_pub can be run").status.success()
    };
    for version in ["tlsv1.2", "tlsv1.3"] {
        for name in ["rsa", "ec"] {
            assert!(publish(&format!("{name}.pem"), &format!("{name}.key"), version), "{name}, {version}");
        }
        // Signed by itself.
        assert!(!publish("server.pem", "server.key", version), "{version}");
    }
}
