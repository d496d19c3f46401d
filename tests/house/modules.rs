//! The modules of a crate, and which file imports from which.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use crate::source::{Import, Source};

/// How many re-exports of re-exports are followed.
const DEPTH: usize = 16;

#[derive(Default)]
struct Module {
    /// Empty where there is none.
    file: String,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Compiled for tests alone.
    is_test: bool,
    source: Source,
}

/// Where a path leads: to a module, or to something that a module defines.
#[derive(Clone, Copy)]
enum Place {
    Module(usize),
    Item(usize),
}

impl Place {
    fn module(self) -> usize {
        let (Self::Module(module) | Self::Item(module)) = self;
        module
    }
}

/// The lines that import, by importing and imported file.
pub type Edges = BTreeMap<(String, String), BTreeSet<(usize, String)>>;

/// The modules of a crate; the first is its root.
pub struct Crate(Vec<Module>);

impl Crate {
    /// The crate of the given files: paths in the source folder, and texts.
    pub fn new(files: &[(String, String)]) -> Self {
        let mut modules = Self(vec![Module::default()]);
        for (file, text) in files {
            let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
            // The root of a program, which nobody can import.
            if path == "main" {
                continue;
            }
            let mut at = 0;
            for name in path.split('/').filter(|name| *name != "lib") {
                at = modules.child(at, name);
                modules.0[at].is_test |= name == "tests" || name.ends_with("_tests");
            }
            modules.add(at, file, Source::read(text));
        }
        modules
    }

    fn child(&mut self, parent: usize, name: &str) -> usize {
        if let Some(&child) = self.0[parent].children.get(name) {
            return child;
        }
        let child = self.0.len();
        self.0.push(Module { parent, ..Module::default() });
        self.0[parent].children.insert(name.to_string(), child);
        child
    }

    fn add(&mut self, at: usize, file: &str, mut source: Source) {
        for (name, inline) in std::mem::take(&mut source.inline) {
            let child = self.child(at, &name);
            self.add(child, file, inline);
        }
        for name in &source.tests {
            let child = self.child(at, name);
            self.0[child].is_test = true;
        }
        self.0[at].file = file.to_string();
        self.0[at].source = source;
    }

    /// A module and those around it, up to the root.
    fn and_ancestors(&self, module: usize) -> impl Iterator<Item = usize> {
        successors(Some(module), |&m| (m != 0).then(|| self.0[m].parent))
    }

    /// Where a path leads from a module; `None` if out of the crate.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Place> {
        let Module { parent, children, source, .. } = &self.0[from];
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(0, rest, depth),
            "self" => self.walk(from, rest, depth),
            "super" => self.walk(*parent, rest, depth),
            name if children.contains_key(name) || source.defined.contains(name) => {
                self.walk(from, path, depth)
            }
            name => {
                let import = source.imports.iter().find(|import| import.name == name)?;
                // A declaration that names a crate as it is.
                if depth == 0 || import.path[..] == *path {
                    return None;
                }
                match self.resolve(from, &import.path, depth - 1)? {
                    Place::Module(target) => self.walk(target, rest, depth - 1),
                    item => Some(item),
                }
            }
        }
    }

    /// Where the rest of a path leads from a module.
    fn walk(&self, start: usize, path: &[String], depth: usize) -> Option<Place> {
        let mut at = start;
        for (i, name) in path.iter().enumerate() {
            let Module { parent, children, source, .. } = &self.0[at];
            if name == "super" {
                at = *parent;
                continue;
            }
            if let Some(&child) = children.get(name) {
                at = child;
                continue;
            }
            if source.defined.contains(name) || depth == 0 {
                return Some(Place::Item(at));
            }
            if let Some(import) = source.imports.iter().find(|import| import.name == *name) {
                // A private import is the module's own to those who take it from there.
                let target = import.public.then(|| self.resolve(at, &import.path, depth - 1)).flatten();
                return match target {
                    Some(Place::Module(target)) => self.walk(target, &path[i + 1..], depth - 1),
                    item => item.or(Some(Place::Item(at))),
                };
            }
            let globs = source.imports.iter().filter(|import| import.public && import.name == "*");
            let mut targets = globs.filter_map(|import| self.resolve(at, &import.path, depth - 1));
            return match targets.find(|target| self.has(target.module(), name)) {
                Some(target) => self.walk(target.module(), &path[i..], depth - 1),
                None => Some(Place::Item(at)),
            };
        }
        Some(Place::Module(at))
    }

    fn has(&self, module: usize, name: &str) -> bool {
        let source = &self.0[module].source;
        source.defined.contains(name)
            || source.imports.iter().any(|import| import.public && import.name == name)
    }

    /// Which file imports from which.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        let tested = |at: usize| self.and_ancestors(at).any(|m| self.0[m].is_test);
        for at in (0..self.0.len()).filter(|&at| !tested(at)) {
            let Module { file, source, .. } = &self.0[at];
            let mut add = |target: usize, line: usize, path: &[String]| {
                // A folder without a file of its own stands for the one around it.
                let to = self.and_ancestors(target).map(|m| &self.0[m].file).find(|to| !to.is_empty());
                if let Some(to) = to.filter(|to| *to != file) {
                    edges.entry((file.clone(), to.clone())).or_default().insert((line, path.join("::")));
                }
            };
            for import in &source.imports {
                let Some(place) = self.resolve(at, &import.path, DEPTH) else { continue };
                let target = place.module();
                let below = target != at && self.and_ancestors(target).any(|m| m == at);
                let reexport = import.public && below && !source.named.contains(&import.name);
                // The paths in code say what is used of a module.
                let by_paths = matches!(place, Place::Module(_))
                    && source.paths.iter().any(|(path, _)| path[0] == import.name);
                if !reexport && !by_paths {
                    add(target, import.line, &import.path);
                }
            }
            for (path, line) in &source.paths {
                // What begins with an imported item has been counted.
                let counted = |import: &Import| {
                    import.name == path[0]
                        && matches!(self.resolve(at, &import.path, DEPTH), Some(Place::Item(_)))
                };
                if !source.imports.iter().any(counted)
                    && let Some(place) = self.resolve(at, path, DEPTH)
                {
                    add(place.module(), *line, path);
                }
            }
        }
        edges
    }
}
