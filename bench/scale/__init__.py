"""How the driver scales: its real code on a simulated job, without Spark."""
