// Adds the regions that ntrm segment found to the open image, or with Run > Run for project to every image.
// Looks for <results>/<image name up to its last dot>/regions.geojson or regions.geojson.gz.
import qupath.lib.io.PathIO

// The folder that was given to ntrm segment with --out:
def results = buildFilePath(PROJECT_BASE_DIR, 'results')
// Whether regions of an earlier import go first: locked annotations that carry our measurement. Unlock what shall stay.
def replaceEarlier = true

// As ntrm names the folder: a.ome.tif has a.ome, where QuPath's own functions would say a.
def image = getProjectEntry().getImageName()
def name = image.contains('.') ? image.substring(0, image.lastIndexOf('.')) : image
def file = ['regions.geojson', 'regions.geojson.gz']
    .collect { new File(buildFilePath(results, name, it)) }
    .find { it.isFile() }
if (file == null) {
    println "${name}: no regions below ${results}; if the slide has another id there, rename its folder"
    return
}
def regions = PathIO.readObjects(file)
if (replaceEarlier) {
    def earlier = getAnnotationObjects().findAll { it.isLocked() && it.getMeasurementList().containsKey('Perimeter mm') }
    removeObjects(earlier, true)
}
addObjects(regions)
println "${name}: ${regions.size()} regions"
