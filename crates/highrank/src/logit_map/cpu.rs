//! What the file of a logit map provides for Burn's Flex backend: its body on slices.
//!
//! A map without parameters implements [`PointwiseOnCpu`], two functions of one number. Any other implements [`OnCpu`] for its
//! `Function` and [`CpuBody`] for what that makes of the parameters.

use highrank_kernels::cpu::{BLOCK, Real};

/// A `Function` that has a body on slices.
pub(crate) trait OnCpu: Sized {
    /// The map with its parameters in place, or with the tables made from them.
    type Body<T>;

    /// The body for packed parameters.
    fn on_cpu<T: Real>(self, params: &[T]) -> Self::Body<T>;
}

/// How a map works through a row, and what it leaves for the way back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Whether `f(z) = z`: nothing to apply, keep or pull back.
    pub(crate) is_identity: bool,
    /// Whether the sums of the parameters' gradient are about as many as logits. Such a map keeps the logits and parts of a
    /// whole row, and adds to all rows' sums in [`pull_back_row`](CpuBody::pull_back_row).
    pub(crate) is_table: bool,
    /// Logits of a block: what [`apply`](CpuBody::apply) makes of them stays in the first-level cache.
    pub(crate) block: usize,
    /// Values a logit that [`apply`](CpuBody::apply) leaves for the way back.
    pub(crate) parts: usize,
    /// Length of the sums that make the gradient of the packed parameters.
    pub(crate) num_sums: usize,
    /// How many partial results make a sum of a row.
    pub(crate) lanes: usize,
}

impl Layout {
    /// Of a map that keeps nothing and has no parameters.
    pub(super) const NOTHING: Self =
        Self { is_identity: false, is_table: false, block: BLOCK, parts: 0, num_sums: 0, lanes: BLOCK };
}

/// A map on a row's logits, a block at a time, and its gradient.
///
/// A row's block goes through [`apply`](Self::apply) and, while it is in cache, through [`pull_back`](Self::pull_back). The way
/// back of a [table](Layout::is_table) is later, a whole row at a time: [`pull_back_row`](Self::pull_back_row).
pub(crate) trait CpuBody<T: Real> {
    /// The map's [`Layout`].
    fn layout(&self) -> Layout;

    /// `f(z)` of a block, in place. `parts` is empty, or takes [`parts`](Layout::parts) values a logit, of as many logits as
    /// are whole [`LANES`](highrank_kernels::cpu::LANES).
    fn apply(&self, block: &mut [T], parts: &mut [T]);

    /// Turns the gradient of a block's mapped logits into that of the logits, by their [`parts`](Layout::parts), and adds to
    /// the row's sums, [`num_sums`](Layout::num_sums) times [`lanes`](Layout::lanes) of them. Does nothing for the
    /// [identity](Layout::is_identity) and for a [table](Layout::is_table); every other map has its own.
    #[inline(always)]
    fn pull_back(&self, _parts: &[T], _g: &mut [T], _lanes: &mut [T]) {
        let Layout { is_identity, is_table, .. } = self.layout();
        debug_assert!(is_identity || is_table, "a logit map without a way back");
    }

    /// Turns `g / scale`, the gradient of the mapped logits of a row, into the gradient of the logits `z`, and adds to the sums
    /// of all rows. Only called for a [table](Layout::is_table).
    fn pull_back_row(&self, _z: &[T], _parts: &[T], _g: &mut [T], _scale: T, _sums: &mut [T]) {}

    /// Makes the gradient of the packed parameters from the sums.
    fn finish(&self, _params: &[T], _sums: &[T], _d_params: &mut [T]) {}
}

/// A map without parameters, one number at a time; the loops over a block are the same for all such maps.
pub(crate) trait PointwiseOnCpu: Copy {
    /// `f(z)`.
    fn value<T: Real>(self, z: T) -> T;

    /// `f(z)` and `f'(z)`.
    fn value_and_slope<T: Real>(self, z: T) -> [T; 2];
}

impl<M: PointwiseOnCpu> OnCpu for M {
    type Body<T> = M;

    fn on_cpu<T: Real>(self, _params: &[T]) -> M {
        self
    }
}

impl<T: Real, M: PointwiseOnCpu> CpuBody<T> for M {
    /// Keeps the slope.
    fn layout(&self) -> Layout {
        Layout { parts: 1, ..Layout::NOTHING }
    }

    #[inline(always)]
    fn apply(&self, block: &mut [T], parts: &mut [T]) {
        let map = *self;
        match parts {
            [] => block.iter_mut().for_each(|z| *z = map.value(*z)),
            slopes => block.iter_mut().zip(slopes).for_each(|(z, slope)| {
                [*z, *slope] = map.value_and_slope(*z);
            }),
        }
    }

    #[inline(always)]
    fn pull_back(&self, slopes: &[T], g: &mut [T], _lanes: &mut [T]) {
        g.iter_mut().zip(slopes).for_each(|(g, slope)| *g *= *slope);
    }
}

/// Generates, from the lines of the list, [`CpuMap`](super::CpuMap): one of the maps, asked a block at a time which it is.
macro_rules! cpu_maps {
    ($($Map:ident: $file:ident;)+) => {
        /// A logit map on slices: values of a block of logits, and the gradient of a block with the sums of its parameters.
        ///
        /// [`CpuBody`] says what its methods do.
        pub(crate) struct CpuMap<'a, T> {
            params: &'a [T],
            body: CpuMapBody<T>,
            pub(crate) layout: Layout,
        }

        enum CpuMapBody<T> {
            $($Map(<$file::Function as OnCpu>::Body<T>),)+
        }

        impl<'a, T: Real> CpuMap<'a, T> {
            /// The map with its parameters in place, or with the tables made from them.
            ///
            /// # Panics
            /// If the number of parameters is not the function's.
            pub(crate) fn new(function: LogitMapConfig, params: &'a [T]) -> Self {
                assert_eq!(params.len(), function.num_params(), "likelihood: packed parameters of {function:?}");
                let body = match function.plain() {
                    $(PlainMap::$Map(map) => CpuMapBody::$Map(OnCpu::on_cpu(map, params)),)+
                };
                let layout = match &body { $(CpuMapBody::$Map(map) => CpuBody::<T>::layout(map),)+ };
                Self { params, body, layout }
            }

            #[inline(always)]
            pub(crate) fn apply(&self, block: &mut [T], parts: &mut [T]) {
                match &self.body { $(CpuMapBody::$Map(map) => CpuBody::apply(map, block, parts),)+ }
            }

            #[inline(always)]
            pub(crate) fn pull_back(&self, parts: &[T], g: &mut [T], lanes: &mut [T]) {
                match &self.body { $(CpuMapBody::$Map(map) => CpuBody::pull_back(map, parts, g, lanes),)+ }
            }

            #[inline(always)]
            pub(crate) fn pull_back_row(&self, z: &[T], parts: &[T], g: &mut [T], scale: T, sums: &mut [T]) {
                match &self.body { $(CpuMapBody::$Map(map) => CpuBody::pull_back_row(map, z, parts, g, scale, sums),)+ }
            }

            pub(crate) fn finish(&self, sums: &[T], d_params: &mut [T]) {
                match &self.body { $(CpuMapBody::$Map(map) => CpuBody::finish(map, self.params, sums, d_params),)+ }
            }
        }
    };
}

pub(super) use cpu_maps;
