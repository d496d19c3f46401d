//! The pages: links lead somewhere, tables are what the files of results say, and what newcomers read first stays short.

mod links;
mod speed;
mod tables;
mod transformers;
mod vocabulary;

use std::fs;
use std::path::{Path, PathBuf};

use links::{Page, pages};
use serde_json::Value;
use tables::TABLES;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of a file of results.
fn read_lines(name: &str) -> Vec<Value> {
    let text = read(name);
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = pages(&root());
    let broken: Vec<String> = pages.iter().flat_map(|page| page.broken(&pages)).collect();
    assert!(pages.len() > 30 && pages.iter().any(|page| page.links.len() > 10), "{} pages", pages.len());
    assert!(broken.is_empty(), "{} broken links:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn a_link_to_nothing_is_found() {
    let page = Page::new(
        "docs/made-up.md",
        "# A title\n[a](#a-title) [b](../README.md) [c](none.md) [d](#none)\n`[e](f)`\n",
    );
    assert_eq!(page.links, ["#a-title", "../README.md", "none.md", "#none"]);
    let mut pages = pages(&root());
    pages.push(Page::new("docs/made-up.md", "# A title\n"));
    let broken = page.broken(&pages);
    assert_eq!(
        broken,
        ["docs/made-up.md: none.md is not there", "docs/made-up.md: #none is no heading of it"]
    );
}

#[test]
fn every_page_of_the_book_is_in_its_contents() {
    let contents = read("docs/SUMMARY.md");
    let listed = |page: &&Page| page.name.starts_with("docs/") && page.name != "docs/SUMMARY.md";
    for page in pages(&root()).iter().filter(listed) {
        let name = page.name.strip_prefix("docs/").unwrap();
        assert!(contents.contains(&format!("]({name})")), "docs/SUMMARY.md lacks {name}");
    }
}

#[test]
fn every_picture_is_shown_on_a_page() {
    let pages = pages(&root());
    let entries = ["results", "benches/results"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let names = entries.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pictures: Vec<String> = names.filter(|name| name.ends_with(".svg")).collect();
    assert!(pictures.len() > 10, "{pictures:?}");
    for picture in pictures {
        let shown = |page: &Page| page.links.iter().any(|link| link.ends_with(&format!("/{picture}")));
        assert!(pages.iter().any(shown), "no page shows {picture}");
    }
}

#[test]
fn what_is_read_first_stays_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines of 150");
    for (name, most) in [("RESULTS.md", 15 * 1024), ("BENCHMARKS.md", 8 * 1024)] {
        let bytes = read(name).len();
        assert!(bytes <= most, "{name} has {bytes} bytes of {most}");
    }
}

/// All tables that are computed.
fn tables() -> impl Iterator<Item = tables::Table> {
    let others: [tables::Table; 2] =
        [("speed", speed::speed), ("shared-vocabulary", vocabulary::shared_vocabulary)];
    TABLES.into_iter().chain(transformers::TABLES).chain(others)
}

/// The lines of a table below the comment `<!-- results: NAME -->` and its header.
fn table_of_page(text: &str, name: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| *line != format!("<!-- results: {name} -->"));
    lines.next()?;
    let table = lines.skip_while(|line| line.is_empty()).skip(2).take_while(|line| line.starts_with('|'));
    Some(table.map(ToString::to_string).collect())
}

#[test]
fn tables_are_what_the_results_say() {
    let pages = pages(&root());
    for (name, lines) in tables() {
        let found: Vec<_> = pages
            .iter()
            .filter_map(|page| Some((&page.name, table_of_page(&read(&page.name), name)?)))
            .collect();
        assert_eq!(found.len(), 1, "the table {name} must stand on one page");
        let (page, table) = &found[0];
        let lines = lines();
        assert!(*table == lines, "{page}: the table {name} must be\n{}\n", lines.join("\n"));
    }
    let is_mark = |line: &&str| line.starts_with("<!-- results: ");
    let marks: usize = pages.iter().map(|page| read(&page.name).lines().filter(is_mark).count()).sum();
    assert_eq!(marks, tables().count(), "a page names a table that nothing computes");
}

#[test]
fn the_picture_of_the_readme_has_the_figures_of_the_results() {
    let picture = read("docs/cost-quality.svg");
    assert!(picture.contains("<title") && picture.contains("<desc"), "{picture}");
    for (file, heads) in [
        ("study-sizes", &["softmax", "sigsoftmax", "plif", "moc", "mos"][..]),
        ("study-later", &["softmax", "adaptive", "mixtape", "doc"][..]),
    ] {
        for head in heads {
            let figure = tables::test_perplexity(file, head);
            let mark = format!("data-head=\"{file} {head}\" data-test=\"{figure:.1}\"");
            assert!(picture.contains(&mark), "docs/cost-quality.svg lacks {mark}");
        }
    }
}
