# Jobs of batchtools that return something, and some that are killed.
library(batchtools)
open <- function(name) {
  reg <- makeRegistry(name, seed = 1)
  reg$cluster.functions <- makeClusterFunctionsSlurm("slurm.tmpl", scheduler.latency = 0.2)
  reg
}
reg <- open("first")
batchMap(function(x) x^2, 1:3, reg = reg)
submitJobs(reg = reg)
done <- waitForJobs(sleep = 0.5, timeout = 300, reg = reg)
cat("results", done, unlist(reduceResultsList(reg = reg)), "\n")
reg <- open("second")
batchMap(function(x) Sys.sleep(3600), 1:2, reg = reg)
submitJobs(reg = reg)
cat("on system", nrow(findOnSystem(reg = reg)), "\n")
killed <- killJobs(reg = reg)
while (nrow(findOnSystem(reg = reg)) > 0) Sys.sleep(0.5)
cat("killed", killed$killed, "\n")
