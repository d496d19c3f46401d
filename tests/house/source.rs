//! Reads one source text: what it imports, what it defines, and which paths its code names. Tests in it are left out.

use std::collections::{BTreeMap, BTreeSet};

/// One name that a `use` brings in.
pub struct Import {
    pub public: bool,
    pub path: Vec<String>,
    /// The name here; `*` for everything.
    pub name: String,
    pub line: usize,
}

/// The contents of a module: of a file, or of a part of one in braces.
#[derive(Default)]
pub struct Source {
    pub imports: Vec<Import>,
    /// Names of functions, types and other items.
    pub defined: BTreeSet<String>,
    /// Paths in code, with their lines.
    pub paths: Vec<(Vec<String>, usize)>,
    /// Types, functions and first parts of paths that the code names.
    pub named: BTreeSet<String>,
    /// Modules declared for tests alone.
    pub tests: Vec<String>,
    /// Modules whose contents follow in braces.
    pub inline: BTreeMap<String, Source>,
}

impl Source {
    /// Reads a whole file.
    pub fn read(text: &str) -> Self {
        Reader { tokens: tokens(text), at: 0 }.module()
    }
}

/// A word, a `::` or one other character, with its line.
struct Token {
    text: String,
    line: usize,
}

/// The tokens of a text without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // How many characters from `i` on satisfy a condition.
    let count =
        |i: usize, keep: &dyn Fn(char) -> bool| chars.iter().skip(i).take_while(|c| keep(**c)).count();
    let (mut found, mut i, mut line) = (vec![], 0, 1);
    while i < chars.len() {
        let start = i;
        let mut token = None;
        match chars[i] {
            '/' if at(i + 1) == '/' => i += count(i, &|c| c != '\n'),
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            '"' => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
            }
            // A character, or else a lifetime.
            '\'' if at(i + 1) == '\\' => i += 4 + count(i + 3, &|c| c != '\''),
            '\'' if at(i + 2) == '\'' => i += 3,
            '\'' => i += 1 + count(i + 1, &is_word),
            c if is_word(c) => {
                i += count(i, &is_word);
                let word: String = chars[start..i].iter().collect();
                let hashes = count(i, &|c| c == '#');
                if matches!(word.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                    i += hashes + 1;
                    while i < chars.len() && !(at(i) == '"' && count(i + 1, &|c| c == '#') >= hashes) {
                        i += 1;
                    }
                    i += 1 + hashes;
                } else {
                    token = Some(word);
                }
            }
            ':' if at(i + 1) == ':' => {
                i += 2;
                token = Some("::".to_string());
            }
            c => {
                i += 1;
                token = (!c.is_whitespace()).then(|| c.to_string());
            }
        }
        found.extend(token.map(|text| Token { text, line }));
        line += chars[start..i.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

/// Goes through a file's tokens.
struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    /// The token `ahead` of the current one; empty beyond the end.
    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text.as_str())
    }

    fn is_word(&self, ahead: usize) -> bool {
        self.peek(ahead).starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    /// Takes the current token.
    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).map_or_else(String::new, |token| token.text.clone())
    }

    /// Takes an opening bracket and everything up to the one that closes it.
    fn enclosed(&mut self) -> Vec<String> {
        let (mut taken, mut depth) = (vec![], 0);
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            taken.push(self.next());
            if depth == 0 {
                break;
            }
        }
        taken
    }

    /// Takes `pub` with its restriction, if it comes next.
    fn visibility(&mut self) -> bool {
        let public = self.peek(0) == "pub";
        self.at += usize::from(public);
        if public && self.peek(0) == "(" {
            self.enclosed();
        }
        public
    }

    /// The contents of a module, up to the brace that closes it or the end of the file.
    fn module(&mut self) -> Source {
        let mut source = Source::default();
        let mut depth = 0;
        while self.at < self.tokens.len() {
            let public = self.visibility();
            match self.peek(0) {
                "#" => {
                    self.at += 1 + usize::from(self.peek(1) == "!");
                    if self.peek(0) == "[" && is_for_tests(&self.enclosed()) {
                        source.tests.extend(self.skip_item());
                    }
                }
                "use" if self.is_word(1) || matches!(self.peek(1), "::" | "{") => {
                    self.at += 1;
                    self.use_tree(&[], public, &mut source.imports);
                }
                "mod" if self.is_word(1) => {
                    let name = self.peek(1).to_string();
                    self.at += 2;
                    if self.next() == "{" {
                        source.inline.insert(name, self.module());
                    }
                }
                "{" => {
                    depth += 1;
                    self.at += 1;
                }
                "}" if depth == 0 => {
                    self.at += 1;
                    break;
                }
                "}" => {
                    depth -= 1;
                    self.at += 1;
                }
                _ if self.is_word(0) => self.word(depth == 0, &mut source),
                _ => self.at += 1,
            }
        }
        source
    }

    /// Takes an item, up to its semicolon or the end of its braces; returns the name of a module.
    fn skip_item(&mut self) -> Option<String> {
        while self.peek(0) == "#" {
            self.at += 1;
            self.enclosed();
        }
        self.visibility();
        let is_use = self.peek(0) == "use";
        let module = (self.peek(0) == "mod").then(|| self.peek(1).to_string());
        while self.at < self.tokens.len() {
            match self.peek(0) {
                ";" => {
                    self.at += 1;
                    break;
                }
                "{" => {
                    self.enclosed();
                    if !is_use {
                        break;
                    }
                }
                "(" | "[" => drop(self.enclosed()),
                // It was the last of a list, such as a struct's fields.
                ")" | "]" | "}" => break,
                _ => self.at += 1,
            }
        }
        module
    }

    /// A word in code: a definition, a path or a name.
    fn word(&mut self, outermost: bool, source: &mut Source) {
        const DEFINING: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        let line = self.tokens[self.at].line;
        let before = self.at.checked_sub(1).map_or("", |at| &self.tokens[at].text).to_string();
        let name = self.next();
        if outermost && DEFINING.contains(&before.as_str()) {
            source.defined.insert(name);
            return;
        }
        if name == "macro_rules" && self.is_word(1) {
            source.defined.insert(self.peek(1).to_string());
            return;
        }
        let mut path = vec![name.clone()];
        while self.peek(0) == "::" && self.is_word(1) {
            self.at += 1;
            path.push(self.next());
        }
        // A method, or the end of a path that began with brackets.
        if [".", "fn", "::"].contains(&before.as_str()) {
            return;
        }
        // A word in small letters that is not called and leads nowhere is a variable or a field.
        let is_type = name.starts_with(|c: char| c.is_uppercase());
        if is_type || path.len() > 1 || matches!(self.peek(0), "(" | "::") {
            source.named.insert(name);
        }
        if path.len() > 1 {
            source.paths.push((path, line));
        }
    }

    /// One tree of a `use` declaration, its braces expanded.
    fn use_tree(&mut self, prefix: &[String], public: bool, imports: &mut Vec<Import>) {
        let mut path = prefix.to_vec();
        while self.at < self.tokens.len() {
            let line = self.tokens[self.at].line;
            match self.next().as_str() {
                "::" => {}
                "{" => {
                    while !matches!(self.peek(0), "}" | "") {
                        self.use_tree(&path, public, imports);
                        self.at += usize::from(self.peek(0) == ",");
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    imports.push(Import { public, path, name: "*".into(), line });
                    return;
                }
                word => {
                    // `a::{self}` is `a`.
                    if word != "self" || path.is_empty() {
                        path.push(word.to_string());
                    }
                    if self.peek(0) == "::" {
                        continue;
                    }
                    let mut name = path.last().cloned().unwrap_or_default();
                    if self.peek(0) == "as" {
                        self.at += 1;
                        name = self.next();
                    }
                    imports.push(Import { public, path, name, line });
                    return;
                }
            }
        }
    }
}

/// Whether an attribute is `cfg(test)` or `cfg(all(test, ..))`.
fn is_for_tests(attribute: &[String]) -> bool {
    let words: Vec<&str> = attribute.iter().map(String::as_str).collect();
    words.starts_with(&["[", "cfg", "(", "test"])
        || words.starts_with(&["[", "cfg", "(", "all", "("])
            && words.contains(&"test")
            && !words.contains(&"any")
            && !words.contains(&"not")
}
