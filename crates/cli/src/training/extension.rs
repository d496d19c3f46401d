//! Runs that go on for longer than they were started for, or on another device.

use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::print::print_note;
use runs::{Extended, Extension, Folder, RunConfig, Settings};

/// The name of the device that a run of the device `before` goes on with, if the command line names one. Another than the run's needs
/// `change_device`.
pub fn device_of(
    choice: Option<DeviceChoice>,
    change_device: bool,
    before: &str,
) -> Result<Option<String>, Failure> {
    let device = choice.map(device::resolve).map(|name| name.to_string());
    match device.as_ref().filter(|now| **now != before && !change_device) {
        Some(now) => Err(format!(
            "cannot resume: device is \"{now}\" now, but \"{before}\" in the run; leave it out, or add \
             --change-device to continue there with other rounding and random numbers"
        )
        .into()),
        None => Ok(device),
    }
}

/// The run with `change`, if anything is to be changed, which is said; nothing is written yet. The run goes on with `device`.
pub fn extend<S: Settings>(
    run: &Folder<S>,
    before: &RunConfig<S>,
    change: &Extension,
) -> Result<Folder<S>, Failure> {
    device::open(change.device.as_deref().unwrap_or(&before.device).parse()?)?;
    // Before anything is said.
    run.check()?;
    let run = run.extend(change)?;
    for Extended { setting, from, to, .. } in &run.config()?.extensions[before.extensions.len()..] {
        print_note(format_args!("extended: {setting} is {to} now, {from} before"));
    }
    Ok(run)
}
