//! What tests of kernels share: the backends, inputs, results.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use burn::backend::Backend;
use burn::tensor::TensorData;
use burn_fusion::Fusion;
use cubecl::logging::{LaunchObservation, LaunchObserver};

use super::{CubeBackend, CubeDevice};
use crate::tensor::{Floats, Ints};

/// The backend without fusion.
pub type Plain = CubeBackend;

/// The backend with fusion.
pub type Fused = Fusion<CubeBackend>;

/// Whichever WebGPU adapter there is; the first NVIDIA GPU where that is all this was built for.
pub fn device() -> CubeDevice {
    #[cfg(feature = "wgpu")]
    return CubeDevice::Wgpu(least::CHOSEN.with_borrow(Option::clone).unwrap_or_default());
    #[cfg(not(feature = "wgpu"))]
    return CubeDevice::Cuda(Default::default());
}

/// A device that has no more than WebGPU promises of each.
#[cfg(feature = "wgpu")]
mod least {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::task::{Context, Poll, Waker};

    use cubecl::wgpu::wgpu::{
        DeviceDescriptor, ExperimentalFeatures, Features, Instance, InstanceDescriptor, Limits,
        RequestAdapterOptions,
    };
    use cubecl::wgpu::{RuntimeOptions, WgpuDevice, WgpuSetup, init_device};

    thread_local! {
        /// The device of the calling thread's tensors, if it is not the usual one.
        pub(super) static CHOSEN: RefCell<Option<WgpuDevice>> = const { RefCell::new(None) };
    }

    /// Runs `run`, in which [`device`](super::device) is one that binds eight buffers to a kernel, whose cubes have 256 units and
    /// share 16 KiB: the limits that a device has unless it is asked for more.
    pub fn on_least_device<T>(run: impl FnOnce() -> T) -> T {
        static DEVICE: OnceLock<WgpuDevice> = OnceLock::new();
        CHOSEN.set(Some(DEVICE.get_or_init(made).clone()));
        let made = run();
        CHOSEN.set(None);
        made
    }

    fn made() -> WgpuDevice {
        let instance = Instance::new(InstanceDescriptor::new_without_display_handle());
        let adapter = instance.request_adapter(&RequestAdapterOptions::default());
        let adapter = ready(adapter).expect("an adapter");
        let descriptor = DeviceDescriptor {
            required_features: adapter.features().difference(Features::MAPPABLE_PRIMARY_BUFFERS),
            required_limits: Limits::defaults(),
            // SAFETY: nothing here uses a feature that is not finished.
            experimental_features: unsafe { ExperimentalFeatures::enabled() },
            ..Default::default()
        };
        let (device, queue) = ready(adapter.request_device(&descriptor)).expect("a device");
        let backend = adapter.get_info().backend;
        init_device(WgpuSetup { instance, adapter, device, queue, backend }, RuntimeOptions::default())
    }

    /// What a native adapter's futures are: they wait for nothing.
    fn ready<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(made) => made,
            Poll::Pending => panic!("a native adapter answers at once"),
        }
    }
}

#[cfg(feature = "wgpu")]
pub use least::on_least_device;

/// Values in about ±1 from the index alone.
pub fn spread<B, const D: usize>(shape: [usize; D], seed: usize) -> Floats<B>
where
    B: Backend<Device = CubeDevice>,
{
    let values = (0..shape.iter().product::<usize>())
        .map(|i| ((i + 31 * seed) * 7919 % 1009) as f32 / 504.0 - 1.0)
        .collect::<Vec<_>>();
    Floats::from_data(TensorData::new(values, shape), &device())
}

/// A vector of integers.
pub fn integers<B: Backend<Device = CubeDevice>>(values: &[i32]) -> Ints<B> {
    Ints::from_data(TensorData::new(values.to_vec(), [values.len()]), &device())
}

/// The elements of a tensor, row-major.
pub fn values<B: Backend>(tensor: Floats<B>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("a tensor of f32")
}

/// Of every launch of one thread the kernel's name.
struct Launches {
    thread: ThreadId,
    kernels: Mutex<Vec<&'static str>>,
}

impl LaunchObserver for Launches {
    fn launched(&self, kernel: &'static str) {
        if thread::current().id() == self.thread {
            self.kernels.lock().expect("no launch panics here").push(kernel);
        }
    }
}

/// The kernels that `run` launches on the backend without fusion, in their order, beside what it makes.
///
/// Of a product that is multiplied for the first time they are those that its tuner tries.
pub fn launches<T>(run: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
    // The process has one observer.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let seen = Arc::new(Launches { thread: thread::current().id(), kernels: Mutex::default() });
    let watching = LaunchObservation::new(seen.clone());
    let made = run();
    drop(watching);
    let kernels = std::mem::take(&mut *seen.kernels.lock().expect("no launch panics here"));
    (made, kernels)
}
