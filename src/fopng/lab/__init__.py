"""The laboratory that compares the methods: data, benchmarks, training, storage, schedules, reports."""
