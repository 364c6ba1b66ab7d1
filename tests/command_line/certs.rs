//! `pondhawk certs`: certificates that the broker and other programs accept, and explanations.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use pondhawk_tests::{Broker, Options, Program};
use tempfile::TempDir;

fn pondhawk(arguments: &[&str]) -> Output {
    super::pondhawk(arguments, "")
}

/// The output of a command that succeeds.
fn made(arguments: &[&str]) -> String {
    let output = pondhawk(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

/// The message of a command that fails.
fn refused(arguments: &[&str]) -> String {
    let output = pondhawk(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("it is text")
}

/// The lines that belong into a configuration file.
fn configuration(text: &str) -> String {
    text.replace("0.0.0.0:8883", "127.0.0.1:0")
}

fn file(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

/// Every path that `certs` prints leads to a file, and the lines are a configuration as they are.
#[test]
fn clients_connect_with_certificates_that_are_made_here() {
    let place = TempDir::new().expect("a temporary directory");
    let dir = file(place.path(), "certs");
    // Every certificate of a server names this machine too.
    let of_server = made(&["certs", "init", &dir, "--host", "pond.example", "127.0.0.1"]);
    assert!(!of_server.contains("allow_anonymous"), "nobody else may connect without a user: {of_server}");
    let of_client = made(&["certs", "client", &dir, "frog-1"]);
    for (name, mode) in [("ca.key", 0o600), ("server.key", 0o600), ("frog-1.key", 0o600), ("ca.pem", 0o644)] {
        let metadata = fs::metadata(place.path().join("certs").join(name)).expect("it is made");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
    }
    let certs = place.path().join("certs");
    let trust = ["--cafile", &file(&certs, "ca.pem")].map(str::to_owned);
    let identity =
        ["--cert", &file(&certs, "frog-1.pem"), "--key", &file(&certs, "frog-1.key")].map(str::to_owned);

    for (settings, identity) in
        [(configuration(&of_server), &identity[..0]), (configuration(&of_server) + &of_client, &identity[..])]
    {
        let broker = Broker::start(&Options { settings, ..Options::default() });
        let port = broker.address().port().to_string();
        let tool = |program: &str, words: &[&str], host: &str| {
            let mut command = match program {
                "pub" | "sub" => Command::new(pondhawk_tests::pondhawk()),
                other => Command::new(other),
            };
            if ["pub", "sub"].contains(&program) {
                command.arg(program);
            }
            command.args(&trust).args(identity).args(["-h", host, "-p", &port, "-t", "pond"]).args(words);
            command
        };
        for (subscriber, publisher, host) in
            [("sub", "mosquitto_pub", "localhost"), ("mosquitto_sub", "pub", "127.0.0.1")]
        {
            let heard = Program::start(tool(subscriber, &["-C", "1"], host));
            // It is retained, and arrives whoever comes first.
            let output = tool(publisher, &["-m", "croak", "-r"], host).output().expect("it can be run");
            assert!(output.status.success(), "{output:?}");
            assert!(heard.finish().contains("croak"));
        }
        let shown = made(&["certs", "show", &format!("localhost:{port}")]);
        assert!(shown.contains("speaks TLS 1.3 and shows 1 certificate"), "{shown}");
        assert!(shown.contains("problems   none found"), "{shown}");
        // Without a certificate where one is required, nobody is let in.
        if !identity.is_empty() {
            let mut command = Command::new(pondhawk_tests::pondhawk());
            command.arg("pub").args(&trust).args(["-h", "localhost", "-p", &port, "-t", "pond", "-m", "no"]);
            let refused = command.output().expect("it can be run");
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(said.contains("wants a certificate of this client (--cert and --key)"), "{said}");
            assert_eq!(refused.status.code(), Some(8), "{said}");
        }
    }
}

#[test]
fn nothing_is_replaced_and_wrong_names_are_refused() {
    let place = TempDir::new().expect("a temporary directory");
    let dir = place.path().display().to_string();
    let text = refused(&["certs", "client", &dir, "frog"]);
    assert!(text.contains("ca.key") && text.contains("certs init"), "{text}");
    for host in ["a b", "-", "pond/lake", ""] {
        let text = refused(&["certs", "init", &dir, &format!("--host={host}")]);
        assert!(text.contains("host"), "{host}: {text}");
    }
    fs::write(place.path().join("server.pem"), "precious").expect("a temporary file");
    let text = refused(&["certs", "init", &dir, "--host", "pond.example"]);
    assert!(text.contains("server.pem"), "{text}");
    assert_eq!(fs::read(place.path().join("server.pem")).expect("it is there"), b"precious");
    assert!(!place.path().join("ca.key").exists(), "all files, or none");
    fs::remove_file(place.path().join("server.pem")).expect("it is there");
    made(&["certs", "init", &dir, "--host", "*.pond.example"]);
    for name in ["", "../frog", "ca", "server", ".frog", "a/b", &"f".repeat(65)] {
        let text = refused(&["certs", "client", &dir, "--", name]);
        assert!(text.contains("name"), "{name}: {text}");
    }
    made(&["certs", "client", &dir, "frog"]);
    let key = fs::read(place.path().join("frog.key")).expect("it is made");
    assert!(refused(&["certs", "client", &dir, "frog"]).contains("frog."));
    assert_eq!(fs::read(place.path().join("frog.key")).expect("it is there"), key);
}

/// openssl makes what is wrong.
#[test]
fn certificates_are_explained() {
    let place = TempDir::new().expect("a temporary directory");
    let path = |name: &str| file(place.path(), name);
    let openssl = |words: &str| {
        let words = words.replace("DIR", &place.path().display().to_string());
        let output = Command::new("openssl").args(words.split(' ')).output().expect("openssl is there");
        assert!(output.status.success(), "{output:?}");
    };
    openssl("req -x509 -newkey rsa:1024 -nodes -keyout DIR/a.key -out DIR/a.pem -subj /CN=lake -days 7");
    openssl("req -new -newkey rsa:2048 -nodes -keyout DIR/b.key -out DIR/b.csr -subj /CN=frog");
    openssl(
        "x509 -req -in DIR/b.csr -CA DIR/a.pem -CAkey DIR/a.key -set_serial 7 -sha1 -out DIR/b.pem -days 90",
    );
    let of_b = made(&["certs", "show", &path("b.pem")]);
    for text in ["1 certificate.", "for        CN=frog", "signed by  CN=lake", "of version 1", "SHA-1"] {
        assert!(of_b.contains(text), "{text}:\n{of_b}");
    }
    let of_a = made(&["certs", "show", &path("a.pem")]);
    for text in ["signed by  itself", "less than 30 days", "RSA with 1024 bits", "too short"] {
        assert!(of_a.contains(text), "{text}:\n{of_a}");
    }
    // The name tries to colour the terminal.
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout DIR/c.key -out DIR/c.pem -utf8 -subj /CN=\x1b[31mtoad",
    );
    let of_c = made(&["certs", "show", &path("c.pem")]);
    assert!(of_c.contains("for        CN=\\u{1b}[31mtoad") && !of_c.contains('\x1b'), "{of_c}");
    made(&["certs", "init", &path("good"), "--host", "pond.example"]);
    let good = path("good/server.pem");
    let of_good = made(&["certs", "show", &good]);
    for text in ["hosts      pond.example", "may        show who a server is", "problems   none found"] {
        assert!(of_good.contains(text), "{text}:\n{of_good}");
    }
    // The wrong order, and a key in the same file.
    let all =
        ["a.pem", "good/server.pem", "good/server.key"].map(|name| fs::read(path(name)).expect("a file"));
    fs::write(path("all.pem"), all.concat()).expect("a temporary file");
    let of_all = made(&["certs", "show", &path("all.pem")]);
    for text in ["2 certificates, and a private key.", "the order in the file is wrong"] {
        assert!(of_all.contains(text), "{text}:\n{of_all}");
    }
    for (what, text) in [
        (path("none.pem"), "none.pem"),
        (path("b.key"), "a private key and no certificate"),
        ("127.0.0.1:1".to_owned(), "127.0.0.1:1"),
    ] {
        let said = refused(&["certs", "show", &what]);
        assert!(said.contains(text), "{said}");
    }
    // A server that is called by another name.
    let tls = format!("tls_certificate = {good:?}\ntls_key = {:?}\n", path("good/server.key"));
    let settings = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{tls}");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let of_broker = made(&["certs", "show", &broker.address().to_string()]);
    assert!(of_broker.contains("it does not name 127.0.0.1"), "{of_broker}");
    // A server without TLS.
    let plain = Broker::start(&Options::default());
    assert!(refused(&["certs", "show", &plain.address().to_string()]).contains("no TLS"));
}
