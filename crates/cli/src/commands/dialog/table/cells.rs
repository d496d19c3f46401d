//! Runs that differ in their seed alone, together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::outcome::Outcome;

/// The runs of one line of the table, one a seed.
pub struct Cell<'a> {
    /// The runs; at least one.
    pub runs: Vec<&'a Outcome>,
}

impl<'a> Cell<'a> {
    /// Outcomes cell by cell, in the order of the first of each.
    pub fn all(outcomes: &'a [Outcome]) -> Vec<Self> {
        let mut cells: Vec<Self> = vec![];
        for outcome in outcomes {
            match cells.iter_mut().find(|cell| cell.first().line == outcome.line) {
                Some(cell) => cell.runs.push(outcome),
                None => cells.push(Self { runs: vec![outcome] }),
            }
        }
        cells
    }

    /// A run that stands for the head and settings of all.
    pub fn first(&self) -> &'a Outcome {
        self.runs[0]
    }

    /// A value of every run.
    pub fn values<T>(&self, of: impl Fn(&Outcome) -> T) -> Vec<T> {
        self.runs.iter().map(|run| of(run)).collect()
    }

    /// The line in a few words: `mos, K 5`, with the settings that tell the cells apart.
    pub fn name(&self, different: &[String]) -> String {
        let first = self.first();
        let components = first.line.components.map(|components| format!("K {components}"));
        let settings = different.iter().map(|name| format!("{name} {}", self.setting(name)));
        let parts = std::iter::once(first.line.head.to_string()).chain(components).chain(settings);
        parts.collect::<Vec<_>>().join(", ")
    }

    /// A setting as text.
    pub fn setting(&self, name: &str) -> String {
        match self.first().line.settings.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => "–".into(),
        }
    }
}

/// The names of settings that differ between cells whose heads have them.
pub fn different_settings(cells: &[Cell]) -> Vec<String> {
    let names: BTreeSet<&String> = cells.iter().flat_map(|cell| cell.first().line.settings.keys()).collect();
    let differs = |name: &&String| {
        let mut values = cells.iter().filter_map(|cell| cell.first().line.settings.get(*name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    names.into_iter().filter(differs).cloned().collect()
}
