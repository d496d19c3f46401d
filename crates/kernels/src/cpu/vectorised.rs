//! [`vectorised!`](crate::vectorised): work that is compiled for the vectors of the processor.

/// Does work that is compiled for the vectors of the processor: `vectorised!(arch, |name: Type, …| -> Output { … })` has the
/// value of the block. The names are those of variables, and nothing else of a function's can be used in the block.
///
/// Types are written with the lifetime `'a` and a [float type](crate::cpu::Real) `T`. Other parameters are listed before the names,
/// as `[T: Real, U: Copy]`; such work has no value.
///
/// The first argument is a `pulp::Arch`: one serves all the turns of a loop. Crates that use this depend on `pulp`.
///
/// ```
/// use highrank_kernels::cpu::Real;
/// use highrank_kernels::vectorised;
///
/// fn add<T: Real>(sums: &mut [T], x: &[T]) {
///     vectorised!(pulp::Arch::new(), |sums: &'a mut [T], x: &'a [T]| {
///         sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += *x);
///     });
/// }
///
/// let mut sums = [1.0f32, 2.0];
/// add(&mut sums, &[0.5, -2.0]);
/// assert_eq!(sums, [1.5, 0.0]);
/// ```
// A closure that is dispatched instead is not vectorised.
#[macro_export]
macro_rules! vectorised {
    ($arch:expr, |$($name:ident: $type:ty),+ $(,)?| -> $output:ty $work:block) => {
        $crate::vectorised!(@ $arch, [T: $crate::cpu::Real], [$($name: $type),+], $output, $work)
    };
    ($arch:expr, |$($name:ident: $type:ty),+ $(,)?| $work:expr) => {
        $crate::vectorised!(@ $arch, [T: $crate::cpu::Real], [$($name: $type),+], (), $work)
    };
    ($arch:expr, [$($of:ident: $bound:path),+], |$($name:ident: $type:ty),+ $(,)?| $work:expr) => {
        $crate::vectorised!(@ $arch, [$($of: $bound),+], [$($name: $type),+], (), $work)
    };
    (@ $arch:expr, [$($of:ident: $bound:path),+], [$($name:ident: $type:ty),+], $output:ty, $work:expr) => {{
        struct Work<'a, $($of),+> {
            $($name: $type),+
        }

        impl<$($of: $bound),+> ::pulp::WithSimd for Work<'_, $($of),+> {
            type Output = $output;

            #[inline(always)]
            fn with_simd<S: ::pulp::Simd>(self, _simd: S) -> $output {
                let Self { $($name),+ } = self;
                $work
            }
        }

        $arch.dispatch(Work { $($name),+ })
    }};
}
