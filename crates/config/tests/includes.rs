//! Tests of files that include others.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use config::{Config, Environment, Files, Flags, Machine, Sources};

/// Files by their paths. A text of `None` is a directory with a name like a file.
struct Map(BTreeMap<PathBuf, Option<Vec<u8>>>);

impl Files for Map {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.0.get(path) {
            None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file")),
            Some(None) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
            Some(Some(bytes)) => Ok(bytes.clone()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let inside = self.0.keys().filter(|path| path.parent() == Some(directory));
        let mut names: Vec<OsString> = inside.filter_map(|path| Some(path.file_name()?.to_owned())).collect();
        // Neither the order of names nor its reverse.
        let first = 1.min(names.len());
        names.rotate_left(first);
        let is_there = self.0.keys().any(|path| path.starts_with(directory));
        if is_there {
            Ok(names)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "there is no such directory"))
        }
    }

    /// Links of this map have a name that ends with `-link`.
    fn identity(&self, path: &Path) -> PathBuf {
        PathBuf::from(path.to_string_lossy().trim_end_matches("-link"))
    }
}

fn map(files: &[(&str, &str)]) -> Map {
    Map(files.iter().map(|(path, text)| (PathBuf::from(path), Some(text.as_bytes().to_vec()))).collect())
}

fn machine() -> Machine {
    Machine { cores: 4, memory_bytes: 8 << 30, open_files: 20_064, state_dir: "/state".into() }
}

/// Reads `/etc/pond.toml` with the files of a map. Returns `config show`, or the report.
fn show_with(main: &str, files: &Map, variables: &[(&str, &str)]) -> Result<String, String> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment: Environment = variables.collect();
    let main = Some(("/etc/pond.toml", main));
    let sources = Sources::gather(main, Path::new("/etc"), &environment, files);
    let flags = Flags { environment, ..Flags::default() };
    let parsed = Config::parse_with_origins(&sources, &flags, &machine());
    let (config, origins) = parsed.map_err(|report| {
        // Each problem has a place that can be found.
        report.problems().iter().for_each(|problem| {
            report.line_and_column(problem);
        });
        report.render(false)
    })?;
    // The printed configuration is whole without the other files.
    let again = Config::parse(&Sources::of("again", &config.to_toml()), &Flags::default(), &machine());
    assert_eq!(config.to_toml(), again.unwrap().to_toml());
    Ok(config.to_toml_with_origins(&origins))
}

fn show(main: &str, files: &[(&str, &str)]) -> Result<String, String> {
    show_with(main, &map(files), &[])
}

fn listener(port: u16) -> String {
    format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\n")
}

#[test]
fn values_have_the_file_and_line_from_which_they_come() {
    let main =
        "include = [\"conf.d/*.toml\", \"/more/last.toml\"]\nshards = 2\n[limits]\nkeep_alive = \"1 min\"\n";
    let files = [
        ("/etc/conf.d/b.toml", "[limits]\npacket_bytes = \"1 MiB\"\n[sys]\ninterval = \"5 s\"\n"),
        ("/etc/conf.d/a.toml", "# users\n[auth]\npassword_file = \"/u\"\n[log]\nlevel = \"warn\"\n"),
        ("/etc/conf.d/.hidden.toml", "no_such_key = 1\n"),
        ("/etc/conf.d/c.toml~", "no_such_key = 1\n"),
        ("/more/last.toml", "include = \"deeper/x.toml\"\n"),
        ("/more/deeper/x.toml", "log.format = \"json\"\n"),
    ];
    let shown = show(main, &files).unwrap();
    for line in [
        "shards = 2 # line 2\n",
        "keep_alive = \"1 min\" # line 4\n",
        "packet_bytes = \"1 MiB\" # line 2 of /etc/conf.d/b.toml\n",
        "interval = \"5 s\" # line 4 of /etc/conf.d/b.toml\n",
        "password_file = \"/u\" # line 3 of /etc/conf.d/a.toml\n",
        "level = \"warn\" # line 5 of /etc/conf.d/a.toml\n",
        "format = \"json\" # line 1 of /more/deeper/x.toml\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn listeners_add_up_in_the_order_of_the_files() {
    let main = format!("include = \"conf.d/*\"\n{}", listener(5));
    let files = [
        ("/etc/conf.d/20-b", &*listener(2)),
        ("/etc/conf.d/10-a", &*(listener(4) + &listener(3))),
        ("/etc/conf.d/9-c", &*listener(1)),
    ];
    let shown = show(&main, &files).unwrap();
    let ports: Vec<&str> = shown.split("address = \"127.0.0.1:").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(ports, ["5", "4", "3", "2", "1"]);
    assert!(shown.contains("address = \"127.0.0.1:3\" # line 4 of /etc/conf.d/10-a\n"), "{shown}");
    let report = show(&main, &[("/etc/conf.d/a", &listener(5))]).unwrap_err();
    assert!(
        report.contains("two listeners on 127.0.0.1:5") && report.contains("/etc/conf.d/a:2:11"),
        "{report}"
    );
}

#[test]
fn a_key_in_two_files_is_refused_with_both_places() {
    let main = "include = \"a\"\nshards = 2\n[limits]\n\npacket_bytes = \"1 MiB\"\n[log]\n";
    let rows = [
        ("\nshards = 2\n", "`shards`", "/etc/a:2:1", "/etc/pond.toml:2:1"),
        ("[limits]\npacket_bytes = 5000\n", "`limits.packet_bytes`", "/etc/a:2:1", "/etc/pond.toml:5:1"),
        ("  limits.packet_bytes = 5000\n", "`limits.packet_bytes`", "/etc/a:1:10", "/etc/pond.toml:5:1"),
        ("log = 3\n", "`log`", "/etc/a:1:1", "/etc/pond.toml:6:1"),
    ];
    for (text, key, place, earlier) in rows {
        let report = show(main, &[("/etc/a", text)]).unwrap_err();
        for part in [key, "is set in two files", place, &format!("it is also at {earlier}")] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }
    let listeners = show(&format!("include = \"a\"\n{}", listener(1)), &[("/etc/a", "listener = 3\n")]);
    assert!(listeners.unwrap_err().contains("`listener` is set in two files"));
}

#[test]
fn each_mistake_names_its_own_file_line_and_column() {
    let main = "include = [\"a\", \"é\"]\nshard = 2\n";
    let files = [("/etc/a", "[limits]\n\n  no_such = 1\n[sys\n"), ("/etc/é", "[limits]\nkeep_alive = 5\n")];
    let report = show(main, &files).unwrap_err();
    let places: Vec<&str> = report.lines().filter_map(|line| line.trim().strip_prefix("--> ")).collect();
    assert!(places.starts_with(&["/etc/pond.toml:2:1", "/etc/a:3:3", "/etc/a:4:5"]), "{report}");
    assert_eq!(places.last(), Some(&"/etc/é:2:14"), "{report}");
}

#[test]
fn invalid_includes_are_refused_at_the_place_that_names_them() {
    let rows: [(&str, &str, &str); 11] = [
        (
            "include = \"nowhere.toml\"\n",
            "cannot read /etc/nowhere.toml: there is no such file",
            "/etc/pond.toml:1:11",
        ),
        (
            "include = [\"a\",\n \"no/*.toml\"]\n",
            "cannot read /etc/no: there is no such directory",
            "/etc/pond.toml:2:2",
        ),
        ("include = \"d\"\n", "it is no regular file", "/etc/pond.toml:1:11"),
        ("include = \"bytes\"\n", "the file is not UTF-8", "/etc/pond.toml:1:11"),
        ("include = \"*/a\"\n", "has wildcards in a directory", "/etc/pond.toml:1:11"),
        ("include = [\"a\", 3]\n", "`include` cannot be an integer", "/etc/pond.toml:1:17"),
        ("include = \"\"\n", "`include` cannot be empty", "/etc/pond.toml:1:11"),
        ("include = []\n", "`include` cannot be an array", "/etc/pond.toml:1:11"),
        (
            "include = [\"a\", \"./a-link\"]\n",
            "is included twice, or includes itself; it is also at /etc/pond.toml:1:12",
            "/etc/pond.toml:1:17",
        ),
        (
            "include = \"loop\"\n",
            "/etc/loop is included twice, or includes itself; it is also at /etc/pond.toml:1:11",
            "/etc/loop:2:11",
        ),
        ("[limits]\ninclude = \"a\"\n", "there is no key `include` in `limits`", "/etc/pond.toml:2:1"),
    ];
    let mut files = map(&[("/etc/a", ""), ("/etc/./a-link", ""), ("/etc/loop", "\ninclude = \"loop\"\n")]);
    files.0.insert("/etc/d".into(), None);
    files.0.insert("/etc/bytes".into(), Some(vec![0xff]));
    for (main, why, place) in rows {
        let report = show_with(main, &files, &[]).unwrap_err();
        assert!(report.contains(why) && report.contains(place), "{main}: {report}");
    }
    let itself = show("include = \"pond.toml\"\n", &[("/etc/pond.toml", "")]).unwrap_err();
    assert!(itself.contains("includes itself; it is also at /etc/pond.toml"), "{itself}");
}

#[test]
fn depth_and_number_of_files_are_bounded() {
    let deep = |last: &str| {
        let chain =
            [("/etc/1", "include = \"2\""), ("/etc/2", "include = \"3\""), ("/etc/3", "include = \"4\"")];
        show("include = \"1\"\n", &[&chain[..], &[("/etc/4", last), ("/etc/5", "shards = 3")]].concat())
    };
    assert!(deep("shards = 3").unwrap().contains("shards = 3 # line 1 of /etc/4"));
    let report = deep("include = \"5\"").unwrap_err();
    assert!(report.contains("no deeper") && report.contains("/etc/4:1:11"), "{report}");
    let many = |count: usize| {
        let files = (0..count).map(|number| (PathBuf::from(format!("/etc/d/{number}")), Some(Vec::new())));
        show_with("include = \"d/*\"\n", &Map(files.collect()), &[])
    };
    many(100).unwrap();
    let report = many(150).unwrap_err();
    assert_eq!(report.matches("more than 100 files are included").count(), 1, "{report}");
}

#[test]
fn variables_name_files_and_stand_in_their_names() {
    let files = map(&[("/etc/a.toml", "shards = 3"), ("/etc/b.toml", "shards = 4")]);
    let show = |main: &str, variables: &[(&str, &str)]| show_with(main, &files, variables);
    let shown = show("include = \"${NAME}.toml\"\n", &[("NAME", "a")]).unwrap();
    assert!(shown.contains("shards = 3 # line 1 of /etc/a.toml"), "{shown}");
    for variable in ["b.toml", "\"b.toml\"", "[\"b.*\"]"] {
        let shown = show("include = \"a.toml\"\n", &[("PONDHAWK_INCLUDE", variable)]).unwrap();
        assert!(shown.contains("shards = 4 # line 1 of /etc/b.toml"), "{shown}");
    }
    // A variable overrides the value of any file.
    let shown = show("include = \"a.toml\"\n", &[("PONDHAWK_SHARDS", "9")]).unwrap();
    assert!(shown.contains("shards = 9 # PONDHAWK_SHARDS"), "{shown}");
    for (variable, why) in
        [("c.toml", "PONDHAWK_INCLUDE: cannot read /etc/c.toml"), ("[]", "PONDHAWK_INCLUDE")]
    {
        let report = show("", &[("PONDHAWK_INCLUDE", variable)]).unwrap_err();
        assert!(report.contains(why), "{report}");
    }
}

/// Secrets of an included file are not shown either.
#[test]
fn an_included_file_is_shown_without_its_secrets() {
    let report = show("include = \"a\"\n", &[("/etc/a", "é = 1\npassword = \"hush\"\n")]).unwrap_err();
    assert!(report.contains("/etc/a:2:1") && !report.contains("hush"), "{report}");
}

#[test]
fn values_of_flags_have_the_flag_as_their_origin() {
    let flags = Flags {
        listen: vec!["127.0.0.1:7".parse().expect("an address")],
        data_dir: Some("/state".into()),
        verbose: 1,
        ..Flags::default()
    };
    let text = "data_dir = \"/other\"\n[[listener]]\naddress = \"127.0.0.1:1\"\nmax_qos = 1\n";
    let parsed = Config::parse_with_origins(&Sources::of("a.toml", text), &flags, &Machine::detect());
    let (config, origins) = parsed.unwrap_or_else(|report| panic!("{}", report.render(false)));
    let shown = config.to_toml_with_origins(&origins);
    for line in [
        "data_dir = \"/state\" # --data-dir\n",
        "address = \"127.0.0.1:7\" # --listen\n",
        "max_qos = 2 # default\n",
        "level = \"debug\" # --verbose\n",
    ] {
        assert!(shown.contains(line), "{line} {shown}");
    }
}
