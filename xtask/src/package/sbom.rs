//! The list of the libraries in a program (SBOM), in the format CycloneDX 1.6.
//!
//! cargo says which libraries the program is made of, and `Cargo.lock` has the checksums of their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::{Release, text_of, write};

/// One library, as cargo names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    name: String,
    version: String,
    licence: String,
    source: String,
}

/// Libraries, each with the ones that it uses.
type Graph = BTreeMap<Library, BTreeSet<Library>>;

/// Writes the list beside the packages.
pub(super) fn run(release: &Release<'_>) -> Result<PathBuf, String> {
    let mut tree = release.house.cargo();
    tree.args(["tree", "--locked", "--package", "pondhawk", "--target", &release.machine.target()]);
    // Macros run in the compiler, and are not in the program.
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", "|{p}|{l}|{r}"]);
    let graph = graph(&text_of(&mut tree)?)?;
    let path = release.house.root().join("Cargo.lock");
    let lock = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let list = release.folder.join(format!("{}.cdx.json", release.name()));
    write(&list, &document(&graph, &checksums(&lock), &release.version, &release.date("+%FT%TZ")?))?;
    Ok(list)
}

/// Reads the tree of cargo: each line has a depth, a library, its licence and its sources. A library that is listed again has
/// no libraries below its second line.
fn graph(tree: &str) -> Result<Graph, String> {
    let (mut graph, mut path) = (Graph::new(), Vec::<Library>::new());
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.trim_end_matches("(*)").trim_end().split('|').collect();
        let [depth, library, licence, source] = parts[..] else {
            return Err(format!("cargo tree has printed `{line}`"));
        };
        let depth: usize = depth.parse().map_err(|_| format!("cargo tree has printed `{line}`"))?;
        let mut words = library.split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (name, version) = (word(), word().trim_start_matches('v').to_owned());
        // Old manifests have a slash for `OR`.
        let licence = licence.replace('/', " OR ").replace("  OR  ", " OR ");
        let library = Library { name, version, licence, source: source.to_owned() };
        path.truncate(depth);
        if let Some(user) = path.last() {
            graph.entry(user.clone()).or_default().insert(library.clone());
        }
        graph.entry(library.clone()).or_default();
        path.push(library);
    }
    Ok(graph)
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|line| line.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    let one =
        |package| Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?));
    packages.filter_map(one).collect()
}

/// The document. It names the program as the component that uses all others.
fn document(
    graph: &Graph,
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
    time: &str,
) -> String {
    let is_program = |library: &&Library| library.name == "pondhawk" && library.version == version;
    let component = |library: &Library| {
        let checksum = checksums.get(&(library.name.clone(), library.version.clone()));
        component(library, checksum.map(String::as_str), is_program(&library))
    };
    let program: String = graph.keys().filter(is_program).map(component).collect();
    let libraries: Vec<String> = graph.keys().filter(|library| !is_program(library)).map(component).collect();
    let uses = |(library, used): (&Library, &BTreeSet<Library>)| {
        let used: Vec<String> = used.iter().map(|library| text(&reference(library))).collect();
        format!("{{\"ref\":{},\"dependsOn\":[{}]}}", text(&reference(library)), used.join(","))
    };
    let uses: Vec<String> = graph.iter().map(uses).collect();
    format!(
        "{{\"$schema\":\"http://cyclonedx.org/schema/bom-1.6.schema.json\",\"bomFormat\":\"CycloneDX\",\
         \"specVersion\":\"1.6\",\"version\":1,\
         \"metadata\":{{\"timestamp\":{},\"component\":{program}}},\n\"components\":[\n{}\n],\n\"dependencies\":[\n{}\n]}}\n",
        text(time),
        libraries.join(",\n"),
        uses.join(",\n")
    )
}

fn component(library: &Library, checksum: Option<&str>, is_program: bool) -> String {
    let Library { name, version, licence, source } = library;
    let kind = if is_program { "application" } else { "library" };
    let mut fields = vec![
        format!("\"type\":\"{kind}\",\"bom-ref\":{}", text(&reference(library))),
        format!("\"name\":{},\"version\":{}", text(name), text(version)),
    ];
    // The libraries of this repository are published nowhere.
    if checksum.is_some() {
        fields.push(format!("\"purl\":{}", text(&reference(library))));
    }
    fields.extend(
        checksum.map(|sum| format!("\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":{}}}]", text(sum))),
    );
    if !licence.is_empty() {
        fields.push(format!("\"licenses\":[{{\"expression\":{}}}]", text(licence)));
    }
    if !source.is_empty() {
        fields.push(format!("\"externalReferences\":[{{\"type\":\"vcs\",\"url\":{}}}]", text(source)));
    }
    format!("{{{}}}", fields.join(","))
}

/// The name of a library in other parts of the document: its package URL.
fn reference(library: &Library) -> String {
    format!("pkg:cargo/{}@{}", library.name, library.version)
}

/// A text in JSON.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|pondhawk v0.1.0 (/x)|MIT|https://a\n1|mio v1.0.0|MIT/Zlib|\n2|libc v0.2.1|MIT|\n1|libc v0.2.1|MIT| (*)\n";

    #[test]
    fn each_library_is_listed_once_with_all_that_it_uses() {
        let graph = graph(TREE).expect("it is a tree");
        let used: Vec<_> = graph
            .iter()
            .map(|(library, used)| (library.name.as_str(), used.iter().map(|u| u.name.as_str()).collect()))
            .collect();
        assert_eq!(used, [("libc", vec![]), ("mio", vec!["libc"]), ("pondhawk", vec!["libc", "mio"])]);
        assert!(graph.keys().any(|library| library.licence == "MIT OR Zlib"));
        assert!(super::graph("pondhawk v0.1.0").is_err());
    }

    #[test]
    fn checksums_are_those_of_the_lock() {
        let lock = "version = 4\n\n[[package]]\nname = \"mio\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n\
                    [[package]]\nname = \"pondhawk\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        let document = document(&graph(TREE).expect("it is a tree"), &sums, "0.1.0", "now");
        assert!(
            document.contains("\"content\":\"abc\"") && document.contains("\"type\":\"application\""),
            "{document}"
        );
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(text("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
