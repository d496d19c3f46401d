//! What a program on a GPU leaves for the next one.

use std::sync::Once;

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Lets the runtime keep the kernels that it compiles beside the choices of its tuner, which it keeps by itself: finding both
/// anew takes minutes. Other settings of a `cubecl.toml` or `burn.toml` stay, such as where that is. Without effect once a
/// device is open.
pub fn keep_kernels() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.compilation.cache = true;
        CubeClRuntimeConfig::try_set(config);
    });
}
