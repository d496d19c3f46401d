//! The command itself: one run after the other, with what there is of table and pictures; or a list of the runs.

use std::fs;
use std::path::{Path, PathBuf};

use program::args::SET;
use program::failure::{Failure, Incomplete};
use program::files::{check_folder, create_folder, last_part};
use program::interrupt::Interrupted;
use program::print::{print_json, print_note};
use program::ranks::{agree, load_in_turn, refuse};
use program::statistics::grouped;
use runs::RunState;
use runs::ranks::Ranks;
use serde::Serialize;

use crate::commands::sweep::args::SweepArgs;
use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::outcome::Outcome;
use crate::commands::sweep::plan::Plan;
use crate::commands::sweep::stages::{Stages, rank_text};
use crate::commands::sweep::{found, marks, merged, table};
use crate::training::{Output, Record, check_run, compared};

/// Trains all runs, or what is left of them, and writes results, table and pictures; or draws what was written anew. Several
/// processes deal the runs among them. Runs whose loss is not finite are left out, and end in [`Incomplete`].
pub fn run(args: &SweepArgs, program: &'static str, processes: &Ranks) -> Result<(), Failure> {
    if !args.from.is_empty() {
        refuse(processes, "sweep --from")?;
        return redraw(args);
    }
    let command = format!("{program} train");
    let output = Output::new(command, false, &args.training.record, processes, args.dry_run)?;
    let checked = || -> Result<_, Failure> {
        args.out.as_deref().map_or(Ok(()), found::check_out)?;
        Ok((args.data()?, args.training.text(&args.common())))
    };
    let (data, text) = agree(processes, checked())?;
    let tokens = &args.training.tokens;
    let corpus = load_in_turn(processes, || tokens.load(data, &text, args.dry_run))?;
    let planned = || -> Result<_, Failure> {
        let plan = Plan::new(args, &corpus)?;
        for run in &plan.runs {
            check_run(&run.config, &corpus, 1).map_err(|error| format!("{}: {error}", run.name))?;
        }
        let rank_text = args.rank.map(|contexts| rank_text(&corpus, contexts)).transpose()?;
        // Runs of other settings are found before any time is spent.
        let (out, folders) = match &args.out {
            Some(out) => (out.clone(), found::folders(&plan, out)?),
            None => found::fresh(&plan, &args.out())?,
        };
        if !args.dry_run && !args.force {
            found::check_results(&out, &folders)?;
        }
        Ok((plan, rank_text, out, folders))
    };
    let (plan, rank_text, out, folders) = agree(processes, planned())?;
    let configs: Vec<_> = plan.runs.iter().map(|run| compared(&run.config)).collect();
    processes.check_same("runs", &configs)?;
    let finetuning: Vec<_> = plan.runs.iter().map(|run| &run.finetuning).collect();
    processes.check_same("finetuning", &finetuning)?;
    if processes.is_first() {
        plan.notes.iter().for_each(print_note);
    }
    if args.dry_run {
        return if processes.is_first() { list(&plan, &folders, args.json) } else { Ok(()) };
    }
    if processes.is_first() {
        print_note(format_args!("runs and results go to {}", out.display()));
    }
    let process = processes.apart();
    if processes.are_several() {
        let quiet = output.quietly();
        let stages = Stages { corpus: &corpus, output: &quiet, rank_text: None, process: &process };
        deal(&stages, &plan, &folders, processes)?;
        if !processes.is_first() {
            return Ok(());
        }
    }
    // If there were others, all is trained by now.
    let stages =
        Stages { corpus: &corpus, output: &output, rank_text: rank_text.as_ref(), process: &process };
    let (count, mut outcomes) = (plan.runs.len(), vec![]);
    // Of a sweep that goes further, the results of runs that come later in this one, if they are at their end.
    let before = Outcome::read_all(&out).unwrap_or_default();
    // By the plan: early on every head has one combination of values, which would leave a picture that no other replaces.
    let is_one_a_head =
        marks::is_one_a_head(plan.runs.iter().map(|run| (run.config.model.head, &run.settings)));
    for (index, (planned, folder)) in plan.runs.iter().zip(&folders).enumerate() {
        let parameters = grouped(planned.config.model.num_params());
        print_note(format_args!("run {} of {count}: {}, {parameters} parameters", index + 1, planned.name));
        let (outcome, new) = stages.finish(planned, folder)?;
        if let Some(reason) = &outcome.failed {
            print_note(format_args!("{} failed: {reason}", outcome.run));
        }
        if args.json {
            print_json(&outcome);
        }
        outcomes.push(outcome);
        if new || index + 1 == count {
            let later = plan.runs.iter().zip(&folders).skip(index + 1).filter_map(|(planned, folder)| {
                let state = Record::read(folder).ok()?.state;
                let is_ended = matches!(state, RunState::Finished | RunState::Diverged);
                let known = before.iter().find(|known| is_ended && known.run == last_part(folder))?;
                let contexts = rank_text.as_ref().map(|text| text.contexts());
                let rank = known.rank.clone().filter(|rank| Some(rank.rank_contexts) == contexts);
                Some(Outcome { settings: planned.settings.clone(), rank, ..known.clone() })
            });
            let known: Vec<Outcome> = outcomes.iter().cloned().chain(later).collect();
            create_folder(&out)?;
            table::save_lines(&known, &out)?;
            table::save(&merged::filled(&known), &plan.axes, is_one_a_head, &out)?;
        }
    }
    if !args.json {
        print!("{}", table::table(&merged::filled(&outcomes), &plan.axes));
    }
    match outcomes.iter().filter(|outcome| outcome.failed.is_some()).count() {
        0 => Ok(()),
        failed => Err(Incomplete(format!(
            "{failed} of {count} runs failed; delete a run's folder in `{}` to train it again",
            out.display()
        ))
        .into()),
    }
}

/// A run, and what is done of it.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    run: Outcome,
    /// None if there is no folder yet.
    state: Option<RunState>,
    epochs_done: usize,
    epochs: usize,
    /// Of the run that finetunes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    finetuning: Option<RunState>,
}

/// Prints every run with its sizes and what is done of it.
fn list(plan: &Plan, folders: &[PathBuf], json: bool) -> Result<(), Failure> {
    if !json {
        println!("{:<32} {:>13}  {:<36} done", "run", "parameters", "sizes");
    }
    let read = |path: &Path| Record::exists(path).then(|| Record::read(path)).transpose();
    for (planned, path) in plan.runs.iter().zip(folders) {
        let record = read(path)?;
        let run = Outcome::of(planned, planned.name.clone());
        let state = record.as_ref().map(|record| record.state);
        let epochs_done = record.as_ref().map_or(0, Record::epochs_done);
        let epochs = planned.config.train.epochs;
        let finetuning = read(&found::finetuned(path))?.map(|record| record.state);
        if json {
            print_json(&Listed { run, state, epochs_done, epochs, finetuning });
            continue;
        }
        let done =
            state.map_or("nothing".into(), |state| format!("{state}, {epochs_done} of {epochs} epochs"));
        let tuned = finetuning.map_or(String::new(), |state| format!("; finetuning {state}"));
        println!("{:<32} {:>13}  {:<36} {done}{tuned}", run.run, grouped(run.parameters), run.sizes());
    }
    Ok(())
}

/// Trains this process's share of the runs: with N processes, every N-th. Returns when all processes have trained theirs.
fn deal(stages: &Stages, plan: &Plan, folders: &[PathBuf], processes: &Ranks) -> Result<(), Failure> {
    let (size, rank) = (processes.size(), processes.rank());
    let mut own = plan.runs.iter().zip(folders).enumerate().skip(rank).step_by(size);
    let trained = own.try_for_each(|(index, (planned, folder))| {
        let (number, count) = (index + 1, plan.runs.len());
        print_note(format_args!("run {number} of {count}, at rank {rank}: {}", planned.name));
        stages.finish(planned, folder).map(drop)
    });
    if trained.as_ref().is_err_and(|error| !error.is::<Interrupted>()) {
        return trained;
    }
    let interrupted = processes.gather(&[u8::from(trained.is_err())])?.concat().contains(&1);
    match trained {
        Ok(()) if interrupted => {
            let line = "stopped; the same command goes on from here";
            Err(stages.output.interrupt.end(line.into()).into())
        }
        Ok(()) => check_shared(folders, processes),
        trained => trained,
    }
}

/// Checks that rank 0, which goes on alone, has all runs: it would train again those that are on other machines.
fn check_shared(folders: &[PathBuf], processes: &Ranks) -> Result<(), Failure> {
    // A network file system looks for what is new in a folder when the folder is opened.
    let _ = folders.first().and_then(|folder| fs::read_dir(folder.parent()?).ok());
    let missing = folders.iter().position(|folder| !Record::exists(folder));
    let missing = processes.gather_equal(&[missing.map_or(u64::MAX, |index| index as u64)])?[0];
    let Some(folder) = folders.get(missing as usize) else { return Ok(()) };
    let (rank, out) = (missing as usize % processes.size(), folder.parent().unwrap_or(folder).display());
    let line = format!("rank {rank}'s runs are not in `{out}`: give an --out that all machines share");
    agree(processes, Err(line.into()))
}

/// Draws table and pictures of results anew.
fn redraw(args: &SweepArgs) -> Result<(), Failure> {
    let of_training = args.grid.axes.first().map(|axis| axis.flag.as_str());
    let is_set = ["model", "train", "text"].iter().any(|section| args.grid.set.has_section(section));
    if let Some(option) = of_training.or(is_set.then_some(SET)) {
        return Err(format!("--{option} has no effect: --from draws what was trained; leave it out").into());
    }
    let out = args.out();
    if !args.force {
        check_folder(&out, |_| false).map_err(|error| format!("{error}, or add --force"))?;
    }
    let read = args.from.iter().map(|file| Outcome::read_all(file));
    let mut outcomes = read.collect::<Result<Vec<_>, _>>()?.concat();
    if let Some(heads) = args.named_heads() {
        outcomes.retain(|outcome| heads.contains(&outcome.head));
        if outcomes.is_empty() {
            return Err("there is no result of these heads".into());
        }
    }
    let mut outcomes = merged::filled(&outcomes);
    merged::tell_apart(&mut outcomes)?;
    match merged::take_out_repeated(&mut outcomes) {
        0 => {}
        count => print_note(format_args!("left out: {count} results that are given twice")),
    }
    let axes = Axis::all(outcomes.iter().flat_map(|outcome| &outcome.settings));
    let trained = outcomes.iter().filter(|outcome| outcome.trained.is_some());
    let is_one_a_head = marks::is_one_a_head(trained.map(|outcome| (outcome.head, &outcome.settings)));
    create_folder(&out)?;
    table::save(&outcomes, &axes, is_one_a_head, &out)?;
    match args.json {
        true => outcomes.iter().for_each(print_json),
        false => print!("{}", table::table(&outcomes, &axes)),
    }
    Ok(())
}
