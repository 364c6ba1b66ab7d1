//! Each directive of Mosquitto with the fate of its line: rows.tsv.

mod machine;

use machine::{Machine, machine};
use mosquitto::{Kind, Refusal, Start, Translated};

/// Columns of a row.
struct Row<'a> {
    directive: &'a str,
    file: String,
    fate: &'a str,
    texts: Vec<&'a str>,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let lines = include_str!("rows.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [directive, file, fate, texts] = columns[..] else { panic!("{line} has no four columns") };
        Row { directive, file: file.replace('|', "\n"), fate, texts: texts.split('|').collect() }
    })
}

fn translate(file: &str) -> Result<Translated, Refusal> {
    let machine: Machine = machine(&[
        ("m.conf", file),
        ("conf.d/a.conf", "listener 1\nmax_qos 1"),
        ("certs/0a1b2c3d.0", CERTIFICATE),
        ("certs/9d66eef0.1", OTHER),
        ("certs/0a1b2c3d.1", CERTIFICATE),
        ("certs/not-linked.pem", "-----BEGIN CERTIFICATE-----\n3"),
    ]);
    mosquitto::translate("m.conf".as_ref(), &Start::default(), &machine)
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n1";
const OTHER: &str = "-----BEGIN CERTIFICATE-----\n2";

#[test]
fn each_directive_has_its_fate() {
    let mut count = 0;
    for Row { directive, file, fate, texts } in rows() {
        count += 1;
        let translated = translate(&file);
        if fate == "refused" {
            let refused = translated.expect_err(&file).to_string();
            for text in texts {
                assert!(refused.contains(text), "{directive}: {file}\n{refused}");
            }
            continue;
        }
        let translated = translated.unwrap_or_else(|refused| panic!("{directive}: {file}\n{refused}"));
        for text in texts {
            assert!(translated.toml.contains(text), "{directive}: {file}\n{}", translated.toml);
        }
        let kind = match fate {
            "mapped" => None,
            "changed" => Some(Kind::Changed),
            "ignored" => Some(Kind::Ignored),
            "not yet" => Some(Kind::NotYet),
            other => panic!("{other} is no fate"),
        };
        let has = translated.remarks.iter().any(|remark| Some(remark.kind) == kind);
        assert!(has || kind.is_none(), "{directive}: {:?}", translated.remarks);
        let changed = translated.remarks.iter().find(|remark| remark.kind == Kind::Changed);
        assert!(kind.is_some() || changed.is_none(), "{directive}: {changed:?}");
    }
    assert!(count > 150, "{count}");
}

/// A misspelt name of each directive is an error, and so is a value that is missing.
#[test]
fn each_directive_needs_its_name_and_a_value() {
    for Row { directive, .. } in rows() {
        let directive = directive.replace('*', "x");
        for file in [format!("{directive}\n"), format!("{directive}\tx\n"), format!("{directive}_ x\n")] {
            if directive.contains("_opt_") && file.ends_with("_ x\n") {
                continue;
            }
            assert!(translate(&file).is_err(), "{file}");
        }
    }
}

#[test]
fn secrets_never_appear() {
    for Row { file, fate, .. } in rows().filter(|row| row.file.contains("swordfish")) {
        let said = match translate(&file) {
            Ok(translated) => format!("{translated:?}"),
            Err(refused) => format!("{refused:?}{refused}"),
        };
        assert!(!said.contains("swordfish"), "{fate} {said}");
    }
    for file in [
        "plugin x.so\nauth_opt_pw swordfish",
        "password swordfish",
        "password=swordfish",
        "connection x\nremote_password swordfish",
    ] {
        let refused = translate(file).unwrap_err();
        assert!(!format!("{refused:?}{refused}").contains("swordfish"), "{refused}");
    }
}
