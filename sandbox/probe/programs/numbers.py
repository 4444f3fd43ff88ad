# Programs with NumPy, pandas, SciPy and scikit-learn.


#= 30.0
def product_of_matrices():
    import numpy
    a = numpy.ones((300, 300))
    return float((a @ a)[0, 0] / 10)


#= 499500.0
def numbers_mapped_from_a_file():
    import numpy
    a = numpy.memmap("/work/final/probe.dat", dtype="float64", mode="w+", shape=(1000,))
    a[:] = range(1000)
    a.flush()
    total = float(numpy.memmap("/work/final/probe.dat", dtype="float64", mode="r").sum())
    os.unlink("/work/final/probe.dat")
    return total


#= 3 rows
def table_to_a_file_and_back():
    import pandas
    pandas.DataFrame({"id": [1, 2, 3], "target": [0.5, 0.25, 0.125]}).to_csv("/work/final/probe.csv", index=False)
    rows = len(pandas.read_csv("/work/final/probe.csv"))
    os.unlink("/work/final/probe.csv")
    return "%d rows" % rows


#= [0, 1, 4, 9]
def work_in_processes_of_joblib():
    import joblib
    return joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(n, 2) for n in range(4))


#= hit
def cache_of_joblib():
    import joblib
    memory = joblib.Memory("/tmp/joblib", verbose=0)
    calls = []
    def slow(x):
        calls.append(x)
        return x
    cached = memory.cache(slow)
    return "hit" if cached(3) == cached(3) and len(calls) == 1 else "missed"


#= fitted
def forest_with_two_jobs():
    import numpy
    from sklearn.ensemble import RandomForestClassifier
    x = numpy.arange(200.0).reshape(-1, 1)
    model = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(x, x[:, 0] > 100)
    return "fitted" if model.score(x, x[:, 0] > 100) > 0.98 else "wrong"


#= minimum
def optimizer():
    import scipy.optimize
    return "minimum" if abs(scipy.optimize.minimize(lambda x: (x[0] - 3) ** 2, [0.0]).x[0] - 3) < 1e-3 else "none"


# As many threads as the run has processors, not as the machine has.
#= 2
def threads_of_the_libraries():
    return os.environ["OPENBLAS_NUM_THREADS"]
