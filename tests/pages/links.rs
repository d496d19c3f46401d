//! Links between pages.

use std::path::{Component, Path, PathBuf};

use highrank_tests::files;

/// A page of Markdown.
pub struct Page {
    /// Its path in the repository.
    pub name: String,
    /// Relative links, as they are written.
    pub links: Vec<String>,
    headings: Vec<String>,
    root: PathBuf,
}

impl Page {
    pub fn new(name: &str, text: &str) -> Self {
        let (mut links, mut headings, mut in_code) = (vec![], vec![], false);
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if !in_code {
                if let Some(heading) = line.strip_prefix('#') {
                    headings.push(anchor(heading.trim_start_matches('#'), &headings));
                }
                links.extend(targets(&without_code(line)));
            }
        }
        Self { name: name.into(), links, headings, root: crate::root() }
    }

    /// What is wrong with the links of this page.
    pub fn broken(&self, pages: &[Self]) -> Vec<String> {
        let folder = Path::new(&self.name).parent().unwrap();
        let problem = |link: &String| {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let name = if path.is_empty() { self.name.clone() } else { plain(&folder.join(path)) };
            if !pages.iter().any(|page| page.name == name) && !self.root.join(&name).exists() {
                return Some(format!("{}: {link} is not there", self.name));
            }
            let page = pages.iter().find(|page| page.name == name);
            let known =
                heading.is_empty() || page.is_none_or(|page| page.headings.iter().any(|at| at == heading));
            (!known).then(|| format!("{}: {link} is no heading of it", self.name))
        };
        self.links.iter().filter_map(problem).collect()
    }
}

/// All pages of the repository, but for what was built.
pub fn pages(root: &Path) -> Vec<Page> {
    let is_source = |folder: &str| {
        let name = folder.rsplit('/').next().unwrap();
        name != "target" && !name.starts_with('.') && !["shared", "runs"].contains(&folder)
    };
    files(root, ".md", is_source).iter().map(|(name, text)| Page::new(name, text)).collect()
}

/// The anchor that a forge gives a heading.
fn anchor(heading: &str, before: &[String]) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    let plain: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
    let numbered = (1..).map(|number| format!("{plain}-{number}"));
    [plain.clone()].into_iter().chain(numbered).find(|anchor| !before.contains(anchor)).unwrap()
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// What the links in a line lead to, but for other sites.
fn targets(line: &str) -> Vec<String> {
    let starts = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_string()));
    starts.filter(|link| !link.contains("://") && !link.starts_with("mailto:")).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = vec![];
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_str().unwrap().into()),
            _ => {}
        }
    }
    parts.join("/")
}
