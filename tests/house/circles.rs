//! Circles among files, and among the entries of a folder.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Edges;

/// A description of every circle of files, and of every circle of a folder's entries that no circle of files explains.
pub fn report(edges: &Edges) -> Vec<String> {
    let of_files = circles(edges.keys().cloned());
    let mut found: Vec<String> = of_files
        .iter()
        .map(|circle| describe("files", circle, edges, |file| circle.get(file).cloned()))
        .collect();
    let files = edges.keys().flat_map(|(from, to)| [from, to]);
    let folders = files.flat_map(|file| file.match_indices('/').map(|(end, _)| &file[..=end]));
    for folder in folders.chain([""]).collect::<BTreeSet<&str>>() {
        let pairs = edges.keys().filter_map(|(from, to)| Some((entry(folder, from)?, entry(folder, to)?)));
        for circle in circles(pairs.filter(|(from, to)| from != to)) {
            let member = |file: &str| entry(folder, file).filter(|entry| circle.contains(entry));
            let touched = |files: &BTreeSet<String>| {
                files.iter().filter_map(|file| member(file)).collect::<BTreeSet<_>>().len()
            };
            if of_files.iter().all(|files| touched(files) < 2) {
                found.push(describe("folders", &circle, edges, member));
            }
        }
    }
    found
}

/// The entry of a folder that a file is or lies in: for `a/b.rs` and `a/b/c.rs` in `a/` it is `a/b`.
fn entry(folder: &str, file: &str) -> Option<String> {
    let first = file.strip_prefix(folder)?.split('/').next()?;
    Some(format!("{folder}{}", first.trim_end_matches(".rs")))
}

/// The circles of a graph: largest sets of nodes that all reach each other.
fn circles(edges: impl Iterator<Item = (String, String)>) -> BTreeSet<BTreeSet<String>> {
    let mut next: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in edges {
        next.entry(from).or_default().insert(to);
    }
    let reached = |start: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(node) = open.pop() {
            open.extend(next.get(node).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = next.keys().map(|node| (node, reached(node))).collect();
    let around = |node: &String| -> BTreeSet<String> {
        let leads_back = |other: &&String| reach.get(other).is_some_and(|nodes| nodes.contains(node));
        reach[node].iter().filter(leads_back).cloned().collect()
    };
    next.keys().map(around).filter(|circle| circle.len() > 1).collect()
}

/// Names a circle and the lines that close it; `member` says which of its members a file belongs to.
fn describe(
    kind: &str,
    circle: &BTreeSet<String>,
    edges: &Edges,
    member: impl Fn(&str) -> Option<String>,
) -> String {
    let members: Vec<&str> = circle.iter().map(String::as_str).collect();
    let mut text = format!("a circle of {kind}: {}", members.join(", "));
    for ((from, to), lines) in edges {
        if let (Some(a), Some(b)) = (member(from), member(to))
            && a != b
        {
            for (line, path) in lines {
                text.push_str(&format!("\n    {from}:{line}: {path}, of {to}"));
            }
        }
    }
    text
}
