//! Runs that go on for longer than they were started for, or on another device.

use runs::{Extendable, Extended, Extension, Folder};

use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use crate::print::print_note;

/// The name of the device that a run of the device `before` goes on with, if the command line names one.
///
/// # Errors
/// Another device than the run's, without `change_device`.
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

/// Changes the run of the configuration `before`, if anything is to be changed, and says so. The run goes on with `device`.
///
/// # Errors
/// A device that is missing, or what [`Folder::extend`] says. The run is then as it was.
pub fn extend<C: Extendable<Error: std::error::Error + 'static>>(
    run: &Folder<C>,
    before: &C,
    device: &str,
    change: &Extension,
) -> Result<C, Failure> {
    // Before anything is written.
    device::open(change.device.as_deref().unwrap_or(device).parse()?)?;
    let mut after = run.extend(change)?;
    let recorded = before.clone().extensions_mut().len();
    for Extended { setting, from, to, .. } in &after.extensions_mut()[recorded..] {
        print_note(format_args!("extended: {setting} is {to} now, {from} before"));
    }
    Ok(after)
}
