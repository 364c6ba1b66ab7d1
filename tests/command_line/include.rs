//! Commands about a configuration whose files include others.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

/// A directory with files.
struct Place(TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("it is in the directory")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        }
        Self(directory)
    }

    /// Runs the binary in the directory. Returns whether it succeeded, its output, and its messages.
    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut program = Command::new(pondhawk_tests::pondhawk());
        program.args(arguments).current_dir(self.0.path());
        let output = program.output().expect("the binary can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
        (output.status.success(), text(output.stdout), text(output.stderr))
    }
}

const MAIN: &str = "include = \"conf.d/*.toml\"\n[limits]\npacket_bytes = \"1 MiB\"\n";

#[test]
fn check_and_show_have_the_values_of_all_files() {
    let place = Place::new(&[
        ("etc/pond.toml", MAIN),
        ("etc/conf.d/2.toml", "[[listener]]\naddress = \"127.0.0.1:2\"\n"),
        ("etc/conf.d/1.toml", "[limits]\nkeep_alive = \"1 min\"\n[[listener]]\naddress = \"127.0.0.1:1\"\n"),
    ]);
    let (is_good, shown, said) = place.run(&["config", "show", "etc/pond.toml"]);
    assert!(is_good, "{said}");
    for line in [
        "packet_bytes = \"1 MiB\" # line 3\n",
        "keep_alive = \"1 min\" # line 2 of etc/conf.d/1.toml\n",
        "address = \"127.0.0.1:1\" # line 4 of etc/conf.d/1.toml\n",
        "address = \"127.0.0.1:2\" # line 2 of etc/conf.d/2.toml\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let (is_good, checked, said) = place.run(&["check", "etc/pond.toml"]);
    assert!(
        is_good && checked.contains("keep_alive = \"1 min\"\n") && !checked.contains("include"),
        "{said}"
    );
    let (_, explained, _) = place.run(&["config", "explain", "include"]);
    assert!(explained.contains("Other files"), "{explained}");
}

#[test]
fn a_mistake_in_an_included_file_names_it() {
    let place =
        Place::new(&[("etc/pond.toml", MAIN), ("etc/conf.d/1.toml", "[limits]\npacket_bytes = 6000\n")]);
    for command in [&["check"][..], &["config", "show"], &["-c"]] {
        let (is_good, _, said) = place.run(&[command, &["etc/pond.toml"]].concat());
        let names_both = said.contains("etc/conf.d/1.toml:2:1") && said.contains("etc/pond.toml:3:1");
        assert!(
            !is_good && names_both && said.contains("`limits.packet_bytes` is set in two files"),
            "{said}"
        );
    }
    fs::create_dir(place.0.path().join("etc/conf.d/0.toml")).expect("it is ours");
    let (is_good, _, said) = place.run(&["check", "etc/pond.toml"]);
    assert!(!is_good && said.contains("etc/conf.d/0.toml: it is no regular file"), "{said}");
    fs::remove_dir_all(place.0.path().join("etc/conf.d")).expect("it is ours");
    let (is_good, _, said) = place.run(&["check", "etc/pond.toml"]);
    assert!(
        !is_good && said.contains("cannot read etc/conf.d: ") && said.contains("etc/pond.toml:1:11"),
        "{said}"
    );
}

/// The password file may be named in any of the files.
#[test]
fn users_are_added_to_the_password_file_of_an_included_file() {
    let place =
        Place::new(&[("etc/pond.toml", MAIN), ("etc/conf.d/1.toml", "[auth]\npassword_file = \"users\"\n")]);
    let made = place.run(&["passwd", "-b", "-c", "users", "ann", "of the pond"]);
    assert!(made.0, "{}", made.2);
    let (is_good, said, why) = place.run(&["user", "remove", "ann", "--config", "etc/pond.toml"]);
    assert!(is_good && said.contains("users has no user ann any more"), "{said}{why}");
}

/// A file through a pipe begins at the working directory.
#[test]
fn a_pipe_includes_files_of_the_working_directory() {
    let place = Place::new(&[("more.toml", "shards = 3\n")]);
    let shell =
        format!("echo 'include = \"more.toml\"' | {:?} config show /dev/stdin", pondhawk_tests::pondhawk());
    let output = Command::new("sh").args(["-c", &shell]).current_dir(place.0.path()).output();
    let shown = String::from_utf8(output.expect("there is a shell").stdout).expect("the output is text");
    assert!(shown.contains("shards = 3 # line 1 of more.toml\n"), "{shown}");
}
