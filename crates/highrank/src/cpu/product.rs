//! Matrix products on slices, by the `gemm` crate that Flex itself uses.

use gemm::Parallelism;

use super::Real;

/// A matrix as a slice with its row stride and its column stride.
pub type Strided<'a, T> = (&'a [T], usize, usize);

/// The product `[m, k] · [k, n]`, on all threads of the current pool.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
}

impl Product {
    /// Writes `a · b` to `out`, row-major, or adds it to what is there.
    ///
    /// # Panics
    /// If a slice is too short for its size and strides.
    pub fn run<T: Real>(&self, out: &mut [T], a: Strided<'_, T>, b: Strided<'_, T>, accumulate: bool) {
        let Self { m, n, k } = *self;
        assert_eq!(out.len(), m * n, "product: the result has another size");
        if out.is_empty() {
            return;
        }
        assert!(k > 0, "product: sums without terms");
        let long_enough = |(slice, rs, cs): Strided<'_, T>, rows: usize, columns: usize| {
            assert!(slice.len() > (rows - 1) * rs + (columns - 1) * cs, "product: an operand is too short");
        };
        long_enough(a, m, k);
        long_enough(b, k, n);
        // SAFETY: the assertions above keep every access `row · rs + column · cs` within its slice, `out` is
        // exclusive, and `T` is f32 or f64, which the crate supports.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.as_mut_ptr(),
                1,
                n as isize,
                accumulate,
                a.0.as_ptr(),
                a.2 as isize,
                a.1 as isize,
                b.0.as_ptr(),
                b.2 as isize,
                b.1 as isize,
                T::ONE,
                T::ONE,
                false,
                false,
                false,
                Parallelism::Rayon(0),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_accumulation_are_respected() {
        // a [2, 3] stored transposed, b [3, 2] row-major.
        let a = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        let b = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        let mut out = [10.0, 20.0, 30.0, 40.0];
        let product = Product { m: 2, n: 2, k: 3 };
        product.run(&mut out, (&a, 1, 2), (&b, 2, 1), true);
        assert_eq!(out, [14.0, 25.0, 40.0, 51.0]);
        product.run(&mut out, (&a, 1, 2), (&b, 2, 1), false);
        assert_eq!(out, [4.0, 5.0, 10.0, 11.0]);
    }

    #[test]
    #[should_panic(expected = "an operand is too short")]
    fn a_short_operand_is_refused() {
        Product { m: 2, n: 2, k: 3 }.run(&mut [0f32; 4], (&[0.0; 5], 3, 1), (&[0.0; 6], 2, 1), false);
    }
}
