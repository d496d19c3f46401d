//! The names of devices.

use std::fmt;
use std::str::FromStr;

use runs::Error;

/// A device that programs can compute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceName {
    /// The CPU, through Burn's Flex backend.
    Flex,
    /// The CPU, through Burn's NdArray backend.
    Ndarray,
    /// A GPU through WebGPU or Vulkan.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// Another name for Flex.
const CPU: &str = "cpu";
/// How it is listed among the known names.
const CPU_LISTED: &str = "cpu (the same as flex)";

impl DeviceName {
    /// Every device, built in or not.
    pub const ALL: [Self; 4] = [Self::Flex, Self::Ndarray, Self::Wgpu, Self::Cuda];

    /// The name on command lines and in run folders, which is also the name of the Cargo feature that brings it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Ndarray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }

    /// Whether this program was built with it.
    pub fn is_built_in(self) -> bool {
        match self {
            Self::Flex => cfg!(feature = "flex"),
            Self::Ndarray => cfg!(feature = "ndarray"),
            Self::Wgpu => cfg!(feature = "wgpu"),
            Self::Cuda => cfg!(feature = "cuda"),
        }
    }

    /// The device that `text` names.
    fn find(text: &str) -> Option<Self> {
        if text == CPU {
            return Some(Self::Flex);
        }
        Self::ALL.into_iter().find(|device| device.name() == text)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    /// Parses a device's name; `cpu` is another word for `flex`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.map(Self::name).into_iter().chain([CPU_LISTED]);
        Self::find(text).ok_or_else(|| Error::unknown_name("device", text, known))
    }
}

/// What a command line says about the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The fastest one that this program was built with and this machine has.
    #[default]
    Auto,
    /// This one and no other.
    Named(DeviceName),
}

/// The name of the choice that names no device.
const AUTO: &str = "auto";

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad(AUTO),
            Self::Named(device) => device.fmt(f),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    /// Parses `auto` or a device's name.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let known = [AUTO].into_iter().chain(DeviceName::ALL.map(DeviceName::name)).chain([CPU_LISTED]);
        let named = DeviceName::find(text).map(Self::Named);
        named.ok_or_else(|| Error::unknown_name("device", text, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for device in DeviceName::ALL {
            assert_eq!(device.to_string().parse::<DeviceName>().unwrap(), device);
            let choice = DeviceChoice::Named(device);
            assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
        }
        assert_eq!("cpu".parse::<DeviceName>().unwrap(), DeviceName::Flex);
        assert_eq!("cpu".parse::<DeviceChoice>().unwrap(), DeviceChoice::Named(DeviceName::Flex));
        let auto = DeviceChoice::default();
        assert_eq!(auto.to_string(), "auto");
        assert_eq!("auto".parse::<DeviceChoice>().unwrap(), auto);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let message = "gpu".parse::<DeviceName>().unwrap_err().to_string();
        assert!(message.contains("`gpu`") && message.contains("flex, ndarray, wgpu, cuda"), "{message}");
        // What a run folder records is a device, never the wish for one.
        assert!("auto".parse::<DeviceName>().is_err() && !message.contains("auto"), "{message}");
        let message = "gpu".parse::<DeviceChoice>().unwrap_err().to_string();
        assert!(
            message.contains("`gpu`") && message.contains("auto, flex, ndarray, wgpu, cuda"),
            "{message}"
        );
    }
}
