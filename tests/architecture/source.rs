//! A Rust file as the rules see it: tokens with lines, so that comments and strings are never taken for code.

use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One file of the project.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root of the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
    tokens: TokenStream,
}

/// A name in the code with all its segments: `std::net::TcpStream`, however the `use` that brings it in is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// In a `#[cfg(test)]` item or a file of tests.
    pub(crate) is_of_tests: bool,
    /// Followed by `!`.
    pub(crate) is_macro: bool,
}

/// A field or a method behind a dot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The name before the dot: of a value, or of a function that returns it.
    pub(crate) of: String,
    pub(crate) name: String,
    /// The name behind the next dot.
    pub(crate) then: String,
    /// Whether `&` stands before the value.
    pub(crate) is_borrowed: bool,
    pub(crate) line: usize,
}

/// A name in the first argument of a call of a free function, outside of inner groups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) function: String,
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// A type, with the number of its fields and of its methods in this file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) fields: usize,
    pub(crate) methods: usize,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(root).expect("it lies in the workspace").display().to_string();
        Self::parse(&path, &text)
    }

    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tokens = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), text: text.to_owned(), tokens }
    }

    /// The crate this file belongs to, if it is part of what the crate is (under `crates/NAME/src`).
    pub(crate) fn crate_name(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    }

    /// Whether the whole file is only there for tests.
    pub(crate) fn is_of_tests(&self) -> bool {
        let in_folder =
            |folder: &str| self.path.starts_with(folder) || self.path.contains(&format!("/{folder}"));
        let name = self.path.rsplit('/').next().unwrap_or_default();
        in_folder("tests/") || in_folder("fuzz/") || name == "tests.rs" || name.ends_with("_tests.rs")
    }

    /// Every name in the code, in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        let mut names = Vec::new();
        collect_names(self.tokens.clone(), &[], self.is_of_tests(), &mut names);
        names
    }

    /// Everything behind a dot.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        collect_members(self.tokens.clone(), &mut members);
        members
    }

    /// Every name in the first argument of a call of a free function.
    pub(crate) fn first_arguments(&self) -> Vec<Argument> {
        let mut arguments = Vec::new();
        collect_first_arguments(self.tokens.clone(), &mut arguments);
        arguments
    }

    /// Every function with a body, in order; those inside of others are listed by themselves too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        collect_functions(self.tokens.clone(), &mut functions);
        functions
    }

    /// Every struct with named fields, and every `impl` block, each as a type of its own; those in modules inside of the
    /// file too. Functions that a trait names do not count.
    pub(crate) fn types(&self) -> Vec<Type> {
        let mut types = Vec::new();
        collect_types(self.tokens.clone(), &mut types);
        types
    }

    /// `path:line: text`, as every tool prints it.
    pub(crate) fn finding(&self, line: usize, text: impl std::fmt::Display) -> String {
        format!("{}:{line}: {text}", self.path)
    }
}

/// Collects the names of a stream. `prefix` is what stands before the braces of a `use`: in
/// `use std::{net, fs}` the stream `net, fs` has the prefix `std`.
fn collect_names(stream: TokenStream, prefix: &[String], is_of_tests: bool, names: &mut Vec<Name>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut path: Vec<String> = prefix.to_vec();
    let mut item_of_tests = false;
    for (index, token) in tokens.iter().enumerate() {
        let is_of_tests = is_of_tests || item_of_tests;
        let continues = follows_separator(&tokens, index) || (index == 0 && !prefix.is_empty());
        match token {
            TokenTree::Ident(ident) => {
                if !continues && !follows_comma_of_use(&tokens, index, prefix) {
                    path.clear();
                }
                path.push(ident.to_string());
                if !is_separator(&tokens, index + 1) {
                    let is_macro =
                        is_punct(tokens.get(index + 1), '!') && !is_punct(tokens.get(index + 2), '=');
                    let line = ident.span().start().line;
                    names.push(Name { text: path.join("::"), line, is_of_tests, is_macro });
                    path = prefix.to_vec();
                }
            }
            TokenTree::Group(group) => {
                if is_attribute_of_tests(&tokens, index, group) {
                    item_of_tests = true;
                }
                let is_use = continues && group.delimiter() == Delimiter::Brace;
                let inner: &[String] = if is_use { &path } else { &[] };
                collect_names(group.stream(), inner, is_of_tests, names);
                if group.delimiter() == Delimiter::Brace {
                    item_of_tests = false;
                }
                path = prefix.to_vec();
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => item_of_tests = false,
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// `#[cfg(test)]`, also as part of `all(…)`; not `#[cfg(not(test))]`.
fn is_attribute_of_tests(tokens: &[TokenTree], index: usize, group: &Group) -> bool {
    let text = group.stream().to_string().replace(' ', "");
    let follows_hash = index > 0 && is_punct(tokens.get(index - 1), '#');
    follows_hash && (text == "cfg(test)" || text.starts_with("cfg(all(test"))
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// Whether `::` stands at this index.
fn is_separator(tokens: &[TokenTree], index: usize) -> bool {
    is_punct(tokens.get(index), ':') && is_punct(tokens.get(index + 1), ':')
}

fn follows_separator(tokens: &[TokenTree], index: usize) -> bool {
    index >= 2 && is_separator(tokens, index - 2)
}

fn follows_comma_of_use(tokens: &[TokenTree], index: usize, prefix: &[String]) -> bool {
    !prefix.is_empty() && index > 0 && is_punct(tokens.get(index - 1), ',')
}

fn collect_members(stream: TokenStream, members: &mut Vec<Member>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let name = |index: Option<usize>| match index.and_then(|index| tokens.get(index)) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    };
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) if index > 0 && is_punct(tokens.get(index - 1), '.') => {
                let is_call = index > 1 && matches!(tokens[index - 2], TokenTree::Group(_));
                let of = name(index.checked_sub(if is_call { 3 } else { 2 }));
                let then = is_punct(tokens.get(index + 1), '.').then_some(index + 2);
                let line = ident.span().start().line;
                let is_borrowed = is_borrowed(&tokens[..index]);
                members.push(Member { of, name: ident.to_string(), then: name(then), is_borrowed, line });
            }
            TokenTree::Group(group) => collect_members(group.stream(), members),
            _ => {}
        }
    }
}

/// Whether the value whose last part comes after these tokens has one `&` before it: two are the operator.
fn is_borrowed(before: &[TokenTree]) -> bool {
    let is_part = |token: &TokenTree| !matches!(token, TokenTree::Punct(punct) if punct.as_char() != '.');
    let start = before.iter().rposition(|token| !is_part(token));
    start.is_some_and(|at| is_punct(before.get(at), '&') && (at == 0 || !is_punct(before.get(at - 1), '&')))
}

fn collect_first_arguments(stream: TokenStream, arguments: &mut Vec<Argument>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        collect_first_arguments(group.stream(), arguments);
        let function = index.checked_sub(1).and_then(|index| tokens.get(index));
        let (Some(TokenTree::Ident(function)), Delimiter::Parenthesis) = (function, group.delimiter()) else {
            continue;
        };
        if index > 1 && is_punct(tokens.get(index - 2), '.') {
            continue;
        }
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        let first = inner.iter().take_while(|token| !is_punct(Some(token), ','));
        arguments.extend(first.filter_map(|token| match token {
            TokenTree::Ident(name) => Some(Argument {
                function: function.to_string(),
                name: name.to_string(),
                line: name.span().start().line,
            }),
            _ => None,
        }));
    }
}

fn collect_functions(stream: TokenStream, functions: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (index, pair) in tokens.windows(2).enumerate() {
        if let [TokenTree::Ident(keyword), TokenTree::Ident(name)] = pair
            && keyword == "fn"
            && let Some(body) = body_after(&tokens[index..])
        {
            let line = keyword.span().start().line;
            let lines = body.span_close().end().line + 1 - line;
            functions.push(Function { name: name.to_string(), line, lines });
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            collect_functions(group.stream(), functions);
        }
    }
}

fn collect_types(stream: TokenStream, types: &mut Vec<Type>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Ident(keyword) = token else { continue };
        let Some(body) = body_after(&tokens[index..]) else { continue };
        let line = keyword.span().start().line;
        if keyword == "mod" {
            collect_types(body.stream(), types);
        } else if keyword == "struct" {
            let name = tokens[index + 1].to_string();
            types.push(Type { name, line, fields: fields(body.stream()), methods: 0 });
        } else if keyword == "impl"
            && let Some(name) = implemented(&tokens[index + 1..])
        {
            let methods = body.stream().into_iter().filter(|token| token.to_string() == "fn").count();
            types.push(Type { name, line, fields: 0, methods });
        }
    }
}

/// The number of named fields: each has one colon that is no part of a `::`, outside of angle brackets and groups.
fn fields(body: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let (mut depth, mut fields) = (0_usize, 0);
    for index in 0..tokens.len() {
        depth += usize::from(is_punct(tokens.get(index), '<'));
        let is_arrow = index > 0 && is_punct(tokens.get(index - 1), '-');
        depth -= usize::from(is_punct(tokens.get(index), '>') && !is_arrow);
        let is_path = is_separator(&tokens, index) || (index > 0 && is_separator(&tokens, index - 1));
        fields += usize::from(depth == 0 && is_punct(tokens.get(index), ':') && !is_path);
    }
    fields
}

/// The type whose own methods an `impl` has. `None` if it is for a trait.
fn implemented(tokens: &[TokenTree]) -> Option<String> {
    let (mut depth, mut name) = (0_usize, None);
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => {
                depth -= usize::from(!is_punct(tokens.get(index.wrapping_sub(1)), '-'));
            }
            TokenTree::Ident(ident) if ident == "for" && depth == 0 => return None,
            TokenTree::Ident(ident) if ident == "where" && depth == 0 => break,
            TokenTree::Ident(ident) if depth == 0 => name = Some(ident.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => {}
        }
    }
    name
}

/// The first braces, unless a semicolon says that there is no body.
fn body_after(tokens: &[TokenTree]) -> Option<&Group> {
    tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(Some(group)),
        TokenTree::Punct(punct) if punct.as_char() == ';' => Some(None),
        _ => None,
    })?
}

#[cfg(test)]
fn names(text: &str) -> Vec<String> {
    Source::parse("crates/x/src/lib.rs", text).names().into_iter().map(|name| name.text).collect()
}

#[test]
fn a_name_has_all_its_segments_however_it_is_brought_in() {
    assert_eq!(names("use std::net::TcpStream;"), ["use", "std::net::TcpStream"]);
    assert_eq!(
        names("use std::{fmt, net::{TcpStream, UdpSocket}, fs as files};"),
        ["use", "std::fmt", "std::net::TcpStream", "std::net::UdpSocket", "std::fs", "as", "files"]
    );
    assert_eq!(names("let a = ::std::fs::read(b);"), ["let", "a", "std::fs::read", "b"]);
    assert_eq!(names("m!(std::thread::spawn(f))"), ["m", "std::thread::spawn", "f"]);
}

#[test]
fn comments_and_strings_are_no_code() {
    assert!(names("// std::net\n\"std::net\"").is_empty());
    assert!(!names("/// std::net\nstruct A;").contains(&"std::net".to_owned()));
}

#[test]
fn items_of_tests_are_told_from_the_rest() {
    let source = Source::parse(
        "crates/x/src/lib.rs",
        "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}\n#[cfg(test)] use d;\nfn e() {}",
    );
    let of_tests = |name: &str| source.names().iter().find(|found| found.text == name).unwrap().is_of_tests;
    assert_eq!(["a", "b", "c", "d", "e"].map(of_tests), [false, true, false, true, false]);
    assert!(Source::parse("crates/x/tests/a.rs", "").is_of_tests());
    assert!(Source::parse("crates/x/src/codec/tests.rs", "").is_of_tests());
    assert!(!Source::parse("crates/x/src/latest.rs", "").is_of_tests());
}

#[test]
fn what_stands_behind_dots_has_the_names_around_it() {
    let members = Source::parse("x.rs", "fn a() { b.c.d(e(f).g); }").members().into_iter();
    let found: Vec<_> = members.map(|Member { of, name, then, .. }| [of, name, then].join(" ")).collect();
    assert_eq!(found, ["b c d", "c d ", "e g "]);
    let members = Source::parse("x.rs", "fn a() { [&b.c, d.e, &f(g).h]; i && j.k }").members().into_iter();
    let found: Vec<_> = members.map(|member| (member.name, member.is_borrowed)).collect();
    assert_eq!(found, [("c", true), ("e", false), ("h", true), ("k", false)].map(|(n, b)| (n.to_owned(), b)));
}

#[test]
fn the_first_arguments_of_free_functions_are_found() {
    let text = "fn a() { b::add(&c.d(e), f); g.add(h); add(&self.i, add(j, 1)); }";
    let arguments = Source::parse("x.rs", text).first_arguments().into_iter();
    let found: Vec<_> = arguments.map(|argument| (argument.function, argument.name)).collect();
    let expected = [("add", "c"), ("add", "d"), ("add", "j"), ("add", "self"), ("add", "i")];
    assert_eq!(found, expected.map(|(function, name)| (function.to_owned(), name.to_owned())));
}

#[test]
fn the_lines_of_functions_are_counted_with_their_signature() {
    let source = Source::parse("x.rs", "impl A {\n fn a(\n  b: u8,\n ) {\n  fn c() {}\n }\n fn d();\n}");
    assert_eq!(
        source.functions(),
        [Function { name: "a".into(), line: 2, lines: 5 }, Function { name: "c".into(), line: 5, lines: 1 }]
    );
}

#[test]
fn the_fields_and_methods_of_types_are_counted() {
    let text = "struct A<T> { a: std::fmt::Result, b: Box<dyn Fn(u8) -> Option<T>>, c: [u8; 2] }\nstruct B;\n\
        impl<T: Default> A<T> { fn a() {} pub fn b() { fn c() {} } }\nimpl<T> Clone for A<T> { fn clone() {} }\n\
        mod m { impl B { const fn d() {} } }";
    let found = Source::parse("x.rs", text).types().into_iter();
    let found: Vec<_> = found.map(|found| (found.name, found.fields, found.methods)).collect();
    assert_eq!(found, [("A".into(), 3, 0), ("A".into(), 0, 2), ("B".into(), 0, 1)]);
}
