// Adds the regions that ntrm segment found to the open image, or with Run > Run for project to every image.
// Looks for <results>/<image name without its ending>/regions.geojson or regions.geojson.gz.
import qupath.lib.io.PathIO

// The folder that was given to ntrm segment with --out:
def results = buildFilePath(PROJECT_BASE_DIR, 'results')
// Whether regions of an earlier import go first: locked annotations that carry our measurement. Unlock what shall stay.
def replaceEarlier = true

def name = GeneralTools.getNameWithoutExtension(getProjectEntry().getImageName())
def file = ['regions.geojson', 'regions.geojson.gz']
    .collect { new File(buildFilePath(results, name, it)) }
    .find { it.isFile() }
if (file == null) {
    println "${name}: no regions below ${results}; if the slide has another id there, rename its folder"
    return
}
def regions = PathIO.readObjects(file)
if (replaceEarlier) {
    def earlier = getAnnotationObjects().findAll { it.isLocked() && it.measurements.containsKey('Perimeter mm') }
    removeObjects(earlier, true)
}
addObjects(regions)
println "${name}: ${regions.size()} regions"
