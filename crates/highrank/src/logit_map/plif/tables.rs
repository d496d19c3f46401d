//! The tables of the PLIFs that were used last: a model that predicts has its table made once.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use highrank_kernels::cpu::{Buffer, Real};

/// How many tables are kept: those of two models that are used in turns.
const MOST: usize = 2;

/// [`Kept`] tables, the newest first.
static KEPT: Mutex<VecDeque<Arc<dyn Any + Send + Sync>>> = Mutex::new(VecDeque::new());

/// A table with all that it was made of.
struct Kept<T> {
    params: Vec<T>,
    bound: f64,
    table: Arc<Buffer<T>>,
}

/// The table of a PLIF, one that is kept or the one that `make` makes.
///
/// Comparing the parameters takes a small part of the time that the table takes.
pub(super) fn table<T: Real>(params: &[T], bound: f64, make: impl FnOnce() -> Buffer<T>) -> Arc<Buffer<T>> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // Compared where other threads need not wait for it.
    let candidates: Vec<_> = kept().iter().cloned().collect();
    let of_type = candidates.into_iter().filter_map(|kept| kept.downcast::<Kept<T>>().ok());
    let mut fitting = of_type.filter(|kept| kept.bound == bound && kept.params == params);
    if let Some(found) = fitting.next() {
        return found.table.clone();
    }
    let table = Arc::new(make());
    let new = Kept { params: params.to_vec(), bound, table: table.clone() };
    let mut kept = kept();
    kept.push_front(Arc::new(new));
    kept.truncate(MOST);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_that_of_its_parameters_and_no_others() {
        // Tests share what is kept: a table may be gone, but is never another's.
        let of = |params: &[f32], bound| table(params, bound, || Buffer::of(&[params[0], bound as f32]));
        for _ in 0..3 {
            let params = [11.5f32, 12.5, 13.5];
            for (params, bound) in
                [(params, 1.0), (params, 2.0), ([21.5, 12.5, 13.5], 1.0), ([-0.5, 12.5, 13.25], 1.0)]
            {
                assert_eq!(of(&params, bound)[..], [params[0], bound as f32]);
            }
            assert_eq!(of(&params[..2], 1.0)[..], [11.5, 1.0]);
            assert_eq!(table(&params.map(f64::from), 1.0, || Buffer::of(&[7.0]))[..], [7.0]);
        }
    }

    #[test]
    fn a_table_is_made_once() {
        // Another test may push it out, but not every time.
        let found = (0..100).any(|_| {
            let make = || Buffer::of(&[1.0]);
            Arc::ptr_eq(&table(&[1234.5f64], 4.0, make), &table(&[1234.5f64], 4.0, make))
        });
        assert!(found);
        (0..20).for_each(|i| drop(table(&[f64::from(i)], 4.0, || Buffer::of(&[1.0]))));
        assert!(KEPT.lock().unwrap().len() <= MOST);
    }
}
